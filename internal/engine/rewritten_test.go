package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestReadOnlyRewritten: a process of the daemon's own user rewrites all that it may only
// read, again and again while messages and runs come and congestion changes. The engine
// takes nothing from there that harms it: its counts come back to zero, and nothing is left.
func TestReadOnlyRewritten(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		w, a, b := opPair(t, hosts)
		rng := rand.New(rand.NewPCG(uint64(hosts), 2))
		rewrite := func() {
			for _, s := range []*opSide{a, b} {
				m := &s.at.shared
				for i := range m.table {
					m.table[i] = byte(rng.Uint32())
				}
				for _, mem := range m.recv {
					for i := range 1 << 16 {
						mem[i] = byte(rng.Uint32())
					}
				}
			}
		}
		came := 0
		for range 40 { // the process has 256 message ids
			rewrite()
			for range 3 {
				a.submitRun(100, 0, 64)
				a.submit(shm.Sub{Len: 4000})
			}
			rewrite()
			w.run()
			rewrite()
			s := b.cl.socks[b.sock]
			if s.rcvBytes < 0 || s.rcvMsgs < 0 || len(b.cl.rxFree) > int(b.cl.params.MaxRx) {
				t.Fatalf("%d hosts: %d bytes and %d messages unread", hosts, s.rcvBytes, s.rcvMsgs)
			}
			b.look()
			for _, ev := range b.msgs {
				b.gaveBack(ev.RxID)
				came++
			}
			b.msgs = nil
			a.look()
			w.run()
		}
		a.alive(true)
		if came < 120 {
			t.Errorf("%d hosts: %d messages came", hosts, came)
		}
		if s := b.cl.socks[b.sock]; s.rcvBytes != 0 || s.rcvMsgs != 0 {
			t.Errorf("%d hosts: %d bytes in %d messages unread when all were read", hosts, s.rcvBytes, s.rcvMsgs)
		}
		w.idle(a, b)
		w.clean2(a, b)
	}
}
