package engine

import (
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
)

// TestIncarnation: a message that means a port's former socket finds none; one
// that means nobody in particular goes to whoever is bound.
func TestIncarnation(t *testing.T) {
	w, c, _ := lanePair(t, Config{})
	e := w.es[0]
	p := e.peers.all[0]
	inc := e.addrs.all[0].ports.Get(10).inc
	for _, tc := range []struct {
		means uint32
		want  conn.Verdict
	}{{0, conn.Accepted}, {inc, conn.Accepted}, {inc + 1, conn.NoSocket}} {
		h := wire.Header{SPort: 10, DPort: 10, SrcInc: 1, DstInc: tc.means, Len: 4}
		if v, _ := hostOf(p).Deliver(nil, &h, []byte("four")); v != tc.want {
			t.Errorf("Deliver to incarnation %#x of %#x: %d, want %d", tc.means, inc, v, tc.want)
		}
		_, token, v := hostOf(p).Begin(nil, &h)
		if v != tc.want {
			t.Errorf("Begin to incarnation %#x of %#x: %d, want %d", tc.means, inc, v, tc.want)
		}
		if v == conn.Accepted {
			hostOf(p).Abort(nil, token)
		}
	}
	w.clean(c[:]...)
}
