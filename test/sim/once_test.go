package sim

import (
	"bytes"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// once is a run in which several sockets are offered a region of b for one use, at about the
// same time. Two are of one host and in two lanes, one is of a third host, and one is of b's own
// host.
type once struct {
	*script
	users []*endpoint
	tried []*endpoint
	told  uint64
	after []byte // the region when a message that used it had been delivered
}

// TestOnce offers a region for one use to several sockets, and all try to use it, with or
// without a grant. Exactly one message uses it, and the region does not change from then on.
// In half of the runs the operations go in pieces.
func TestOnce(t *testing.T) {
	refused, told := 0, uint64(0)
	for seed := uint64(1); seed <= 24; seed++ {
		s := newScriptWith(t, seed, func(o *options) {
			o.hosts, o.lanes, o.laneV = 3, 2, [3]uint8{0, 7}
			if seed%2 == 0 {
				o.piece = 16
			}
		})
		o := &once{script: s, users: []*endpoint{s.a, s.a2, s.eps[3], s.eps[4]}}
		func() {
			defer s.explain()
			o.play()
			served := s.fates()[rds.Success]
			if served != 1 || len(s.ops) < 2 {
				t.Errorf("%d of %d messages used the region, want 1", served, len(s.ops))
			}
			refused += s.fates()[rds.RemoteError]
			s.finish()
		}()
		if told += o.told; t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if refused == 0 || told == 0 {
		t.Errorf("%d uses were refused, of %d offers the owner was told that they were not granted", refused, told)
	}
	t.Logf("%d uses were refused, of %d offers the owner was told that they were not granted", refused, told)
}

func (o *once) play() {
	s := o.script
	for _, u := range o.users { // so that both lanes are connected
		s.b.send(u.ap, 20, extra{})
		s.eps[3].send(u.ap, 20, extra{})
	}
	s.drain()
	s.r = s.b.register(4096, rds.AllowWrite|rds.UseOnce)
	for _, i := range s.rWork.Perm(len(o.users)) {
		o.offer(pick(s.rWork, s.b, s.eps[3]), o.users[i])
		o.live(below(s.rWork, 60e3))
	}
	o.live(2e6)
	for _, u := range o.users {
		o.use(u)
	}
	o.live(2e6)
	s.drain()
	o.unchanged()
	if s.rWork.IntN(2) == 0 {
		s.r.release()
	}
	o.told = s.b.ungranted + s.eps[3].ungranted
}

// offer sends the cookie to u. by is the owner or another socket of its process. Sometimes a
// load goes first, so that the GRANT comes late.
func (o *once) offer(by, u *endpoint) {
	s := o.script
	if by == u {
		by = s.b
	}
	if s.rWork.IntN(2) == 0 {
		for range 20 {
			by.send(u.ap, 40_000, extra{})
		}
	}
	s.r.offered[u.ap] = true
	s.b.offersOnce(s.r, u.ap) // s.b gets the notice of a GRANT that was refused
	if by != s.b {
		by.offersOnce(s.r, u.ap)
	}
	for by.send(u.ap, 20, extra{cookie: s.r.r.Cookie(), tells: s.r}) == nil {
		s.run(1000) // there is no room behind the load
	}
}

// live lets d nanoseconds pass. A socket that learns of the region uses it at once.
func (o *once) live(d int64) {
	s := o.script
	for end := s.now() + d; s.now() < end; s.run(1000) {
		o.unchanged()
		for _, u := range o.users {
			if slices.Contains(u.knows, s.r) {
				o.use(u)
			}
		}
	}
}

// use has u use the region when it is first called for u.
func (o *once) use(u *endpoint) {
	if !slices.Contains(o.tried, u) {
		o.tried = append(o.tried, u)
		o.issue(u, 1, abi.OpWrite, 20, false)
	}
}

// unchanged checks the region once a message that used it was delivered.
func (o *once) unchanged() {
	used := slices.ContainsFunc(o.ops, func(x *op) bool { return x.m.delivered })
	switch {
	case used && o.after == nil:
		o.after = bytes.Clone(o.r.all())
	case used && !bytes.Equal(o.after, o.r.all()):
		o.t.Error("the region changed after its one message was delivered")
	}
}
