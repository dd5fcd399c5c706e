package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestSetRcvBufUnderLoad: a receive buffer made smaller than what waits in it
// stops senders, a larger one lets them go on, without a message being read.
func TestSetRcvBufUnderLoad(t *testing.T) {
	w := newWorld(t, 2, Config{})
	a, b := w.attach(0, smallParams()), w.attach(1, smallParams())
	from, to := a.bind(10), b.bind(20)
	a.open(from, 0, 0, hostAddr(1), 20)
	a.sendMsg(from, 0, 0, 1000)
	w.run()
	for _, c := range []struct{ bytes, congested uint32 }{{500, 1}, {100_000, 0}, {1, 1}, {1 << 31, 0}} {
		b.must(&ipc.SetRcvBuf{Sock: to, Bytes: c.bytes})
		w.run()
		if got := a.cl.table.Slot(0).LoadCongested(); got != c.congested {
			t.Errorf("receive buffer of %d: congested %d at the sender", c.bytes, got)
		}
	}
	w.clean(a, b)
}
