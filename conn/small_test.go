package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// TestSmallFits: a message is copied next to others only if it fits into a SEND with its header,
// whose length depends on the message. Else nothing would be put into the SEND.
func TestSmallFits(t *testing.T) {
	m := &msg.Msg{LKey: 1}
	m.Track.Atomic = msg.Carried
	for _, c := range []struct {
		data int
		want bool
	}{
		{copyMax - wire.AtomicLen, true},
		{copyMax - wire.AtomicLen + 1, false},
		{copyMax, false},
	} {
		c1 := &Conn{}
		c1.link.maxSend = wire.HeaderLen + copyMax
		m.Data = make([]byte, c.data)
		if got := c1.small(m); got != c.want {
			t.Errorf("%d bytes behind %d in a SEND of %d: small is %v", c.data, c1.headOf(m), c1.link.maxSend, got)
		}
	}
}
