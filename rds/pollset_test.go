package rds

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
)

// pollCase is a condition of the sending side, or of one operation: it does not
// hold at first, other leaves it so, cause makes it hold, end ends it again.
type pollCase struct {
	set               func() WaitSet
	other, cause, end func()
}

// TestPollSet: the descriptor is readable while a condition of the poll set
// holds, and for nothing else; each time one comes to hold is an edge.
func TestPollSet(t *testing.T) {
	for name, mk := range map[string]func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase{
		"send space": func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase {
			a.SetSndBuf(100)
			fill := func() { sendUntil(t, a, stuckAt(0), 50, ErrWouldBlock) }
			fill()
			return pollCase{func() WaitSet { return WaitSet{SendSpace: true} }, func() { mustSend(t, b, "x", a) },
				func() { d.releaseTo(stuckAt(0)) }, fill}
		},
		"send to one": func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase {
			on := congester(t, d, a)
			on(1, true)
			on(2, true)
			return pollCase{func() WaitSet { return WaitSet{SendTo: []netip.AddrPort{stuckAt(1)}} }, func() { on(2, false) },
				func() { on(1, false) }, func() { on(1, true); sendUntil(t, a, stuckAt(1), 1, ErrCongested) }}
		},
		"relief of one": func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase {
			on := congester(t, d, a)
			on(1, true)
			on(2, true)
			return pollCase{func() WaitSet { return WaitSet{Relief: []netip.AddrPort{stuckAt(1)}} }, func() { on(2, false) },
				func() { on(1, false) }, func() { on(1, true); sendUntil(t, a, stuckAt(1), 1, ErrCongested) }}
		},
		"mark": func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase {
			first, second := op(), op()
			_ = first
			return pollCase{func() WaitSet { return WaitSet{Op: []OpRef{{b.LocalAddrPort().Addr(), second}}} },
				func() { d.releaseOne() }, func() { d.releaseOne() }, nil}
		},
		"completion of one": func(t *testing.T, d *fakeDaemon, a, b *Socket, op func() uint64) pollCase {
			op()
			second := op()
			return pollCase{func() WaitSet { return WaitSet{Status: []OpRef{{b.LocalAddrPort().Addr(), second}}} },
				func() { d.releaseOne() }, func() { d.releaseOne() }, nil}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b, local, _, r := rdmaPair(t, noSpin)
				op := func() uint64 {
					d.do(func() { d.holdOps = true })
					return write(t, a, b.LocalAddrPort(), r, local, true)
				}
				c := mk(t, d, a, b, op)
				fd, err := a.PollFD(c.set())
				if err != nil {
					t.Fatal(err)
				}
				want := func(on bool, when string) {
					t.Helper()
					synctest.Wait()
					if readable(t, fd) != on {
						t.Errorf("%s: readable %v", when, !on)
					}
				}
				want(false, "at first")
				c.other()
				want(false, "after something else")
				c.cause()
				want(true, "when it holds")
				if got, err := a.Wait(DontWait, c.set()); err != nil || got.empty() {
					t.Errorf("when it holds: %+v, %v", got, err)
				}
				want(true, "after a look")
				if c.end != nil {
					c.end()
					want(false, "when it holds no more")
					c.cause()
					want(true, "when it holds again")
				}
				a.Close()
			})
		})
	}
}

// sendUntil sends messages of n bytes until a send fails as it should.
func sendUntil(t *testing.T, s *Socket, to netip.AddrPort, n int, want error) {
	t.Helper()
	for {
		if _, err := trySend(s, make([]byte, n), to); err != nil {
			if !errors.Is(err, want) {
				t.Fatal(err)
			}
			return
		}
	}
}

// congester opens destinations and says whether one is congested.
func congester(t *testing.T, d *fakeDaemon, s *Socket) func(port int, on bool) {
	for port := range 3 {
		if _, err := s.SendTo(nil, stuckAt(port)); err != nil {
			t.Fatal(err)
		}
	}
	return func(port int, on bool) {
		d.do(func() { d.setSlotCongested(d.slots[s.dests[stuckAt(port)].slot], on) })
	}
}

// releaseOne finishes the oldest held message.
func (d *fakeDaemon) releaseOne() {
	d.do(func() {
		n := 0
		d.release(func(*fakeMsg) bool { n++; return n == 1 }, d.finish)
	})
}

// TestPollSetErrors: what cannot be polled for is refused, and a completion that
// somebody took makes the descriptor readable for the error.
func TestPollSetErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, _, r := rdmaPair(t, noSpin)
		fd := mustPollFD(t, a)
		host := b.LocalAddrPort().Addr()
		for _, w := range []WaitSet{{}, {Op: []OpRef{{host, 7}}}, {Status: []OpRef{{host, 7}}}} {
			if _, err := a.PollFD(w); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", w, err)
			}
		}
		d.do(func() { d.holdOps = true })
		id := write(t, a, b.LocalAddrPort(), r, local, true)
		taken := WaitSet{Status: []OpRef{{host, id}}}
		if _, err := a.PollFD(taken); err != nil || readable(t, fd) {
			t.Fatal(err)
		}
		d.releaseOne()
		synctest.Wait()
		if _, err := a.WaitOp(bg(), host, id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := a.Wait(DontWait, taken); !errors.Is(err, ErrInvalid) || !readable(t, fd) {
			t.Errorf("a completion that was taken: %v", err)
		}
		// Messages are not in the set.
		if _, err := a.PollFD(WaitSet{Notice: true}); err != nil {
			t.Fatal(err)
		}
		mustSend(t, b, "x", a)
		synctest.Wait()
		if readable(t, fd) {
			t.Error("readable for a message that nobody polls for")
		}
		if _, err := a.PollFD(WaitSet{Notice: true, Message: true}); err != nil || !readable(t, fd) {
			t.Error("not readable for a message that was there", err)
		}
		a.Close()
		if _, err := a.PollFD(WaitSet{Notice: true}); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed socket: %v", err)
		}
		if _, err := a.Wait(DontWait, WaitSet{Notice: true}); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed socket: %v", err)
		}
	})
}
