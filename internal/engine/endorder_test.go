package engine

import (
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// lengths takes everything there is, and returns the lengths of the messages.
func (r *raw) lengths() (all []uint32) {
	ret := r.seg.RecvRetProducer()
	for _, e := range r.events() {
		if ev := e.Event(); ev.Kind == shm.EvData {
			all = append(all, ev.Len)
			ret.Put(ev.RxID)
		}
	}
	ret.Publish()
	if shm.WakeNeeded(r.seg.DaemonAsleep()) {
		r.at.RingDaemon()
	}
	return all
}

// TestEndLeavesNoGap: a process that ends has sent more than can go out at once, and than one turn
// withdraws. What goes out between these turns is not behind something that was withdrawn: the
// receiver gets the first messages, and none that follows one that it does not get.
func TestEndLeavesNoGap(t *testing.T) {
	const n = 12_000
	for name, to := range map[string]int{"another host": 1, "this host": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, Config{})
			p := smallParams()
			p.SubEntries, p.MaxMsgs, p.EventEntries, p.MaxRx = 1<<14, 1<<14, 1<<10, 1<<10
			a, b := w.attach(0, p), w.attach(to, p)
			b.must(&ipc.Bind{Addr: hostAddr(to), Port: 20, RcvBuf: 1 << 17})
			s := a.bind(10)
			a.open(s, 0, 0, hostAddr(to), 20)
			a.sendMsg(s, 0, 0, 1)
			w.run()
			for id := range uint32(n) {
				a.sendMsg(s, 0, 1+id, int(2+id)) // the length tells which one it is
			}
			a.at.Close()
			got, left := b.lengths(), 0
			for w.es[0].clients.leaving.N > 0 {
				left++
				w.pass(ms, w.es[1]) // what is on its way arrives, and the peer acks it
				w.es[0].Turn(w.net.Now(), Wall(w.net.Now()))
				got = append(got, b.lengths()...)
			}
			for more := got; len(more) > 0; got = append(got, more...) {
				w.run()
				more = b.lengths()
			}
			for i, length := range got {
				if length != uint32(1+i) {
					t.Fatalf("message %d of %d that arrived is number %d", 1+i, len(got), length)
				}
			}
			if len(got) < 2 || len(got) > n/2 || left < 2 {
				t.Errorf("%d messages arrived of %d, withdrawn in %d turns: nothing is shown", len(got), n, left)
			}
			w.clean(a, b)
		})
	}
}
