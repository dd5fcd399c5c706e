package sim

import (
	"testing"

	"github.com/rdsd/rdsd/rds"
)

// TestBoundInTurn: a socket closes with messages and statuses for it just written
// and not yet published, and the process binds another one at once, with the
// same index, in the same turn of its daemon: nothing of the old one reaches it.
// The checkers know what each socket may receive.
func TestBoundInTurn(t *testing.T) {
	for seed := range 20 {
		s := newScript(t)
		s.opt.held = 100
		func() {
			defer s.explain()
			for range seed % 4 {
				s.run(int64(seed) * 1000)
				s.a.send(s.a2.ap, 20, extra{})
			}
			old := s.r
			s.r = s.b.register(100, rds.AllowRead) // not granted: refused at once
			if seed%2 == 0 {
				s.issue(s.a2, 1+seed%3, rds.Read, 10, false)
			}
			for _, o := range s.ops {
				o.refusable = 22
			}
			s.r = old
			for range 1 + seed%3 {
				s.a.send(s.a2.ap, 20, extra{})
			}
			c := s.a2.c
			s.a2.close()
			e := c.bind(500)
			e.poll()
			s.drain()
			s.a.send(e.ap, 20, extra{})
			s.drain()
			if !t.Failed() {
				s.finish()
			}
		}()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
