package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/rds"
)

// succeed replaces the host's engine, which stands still, by another one that has nothing of
// it but its state in that version, on another device.
func (h *host) succeed(version uint16) { h.succeedAs(version, h.older) }

// succeedAs is succeed by a daemon that is older, or not.
func (h *host) succeedAs(version uint16, older bool) {
	w := h.w
	var all []*engine.InProcess
	for _, c := range h.clients {
		all = append(all, c.at)
	}
	heirs := engine.NewInProcessHeirs(all)
	state := handover.Write(version)
	if err := h.e.Encode(state, heirs.Number); h.refused(err, version) {
		return
	} else if err != nil {
		broken("succession", "host %d is not handed over: %v", h.n, err)
	}
	must(h.dev.Close())
	h.dev = w.net.Device(h.addr)
	pools := h.pools
	switch {
	case older && !h.older:
		w.saw("taken over by an older one")
	case h.older && !older:
		w.saw("an older one was taken over")
	}
	h.older = older
	e := h.engine()
	if err := heirs.Adopt(e, state.Bytes()); err != nil {
		broken("succession", "host %d is not taken over: %v", h.n, err)
	}
	again := handover.Write(version)
	if err := e.Encode(again, heirs.Number); err != nil {
		broken("succession", "host %d is not handed over again: %v", h.n, err)
	}
	if a, b := state.Bytes(), again.Bytes(); !bytes.Equal(a, b) {
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		broken("succession", "host %d: what was adopted is written another way from byte %d on:\n%x\n%x", h.n, n,
			a[max(n-64, 0):min(n+32, len(a))], b[max(n-64, 0):min(n+32, len(b))])
	}
	w.mem.back(pools)
	h.e, h.behind = e, map[engine.MarkKey]lateMark{}
	w.saw("taken over")
	w.saw(fmt.Sprintf("taken over in version %d", version))
	for _, r := range w.regions {
		if version < 4 && r.e.h == h && r.opened { // an older daemon knows nothing of it
			r.opened = false
			for _, o := range r.ops {
				o.granted = o.granted && r.granted[o.e.ap]
			}
		}
	}
	if version < 5 {
		w.forgetAsked(h)
	}
	if version < 6 {
		w.forgetTraces(h)
	}
	w.log(h, "succeed", int64(len(state.Bytes())), 0, 0)
}

// successionScenario is calmScenario in which whoever stood still is replaced.
var successionScenario = &scenario{
	name: "succession",
	options: func(r *rand.Rand, o *options) {
		piece := o.piece
		calmScenario.options(r, o)
		o.succeed, o.piece = true, piece
		o.rate = pick[uint64](r, 0, 50, 500)
	},
	play: calmScenario.play,
	seen: []string{"taken over", "halted with peers up",
		fmt.Sprintf("taken over in version %d", handover.Oldest), fmt.Sprintf("taken over in version %d", handover.Newest)},
}

// TestSimSuccession: where daemons do nothing but hand over, no application is told of a loss
// and no outcome is unknown.
func TestSimSuccession(t *testing.T) { successionScenario.test(t) }

// hereWork is what sockets of one host do while its engine is to be replaced.
var hereWork = []struct {
	name string
	do   func(*script)
}{
	{"messages", func(s *script) {
		s.datagrams(10)
		s.a.send(s.b.ap, 300_000, extra{})
		s.back(3)
	}},
	{"copies", func(s *script) {
		for i, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead, abi.OpWrite} {
			o := &op{w: s.world, token: uint64(len(s.world.ops) + 1), e: s.a, r: s.r, kind: kind, n: 40_000, off: s.r.next}
			if kind == abi.OpRead {
				o.off = 0
			}
			o.flags = rds.RDMA{Notify: true}
			if !s.a.post(s.b.ap, 20*i, extra{ops: []*op{o}}) {
				s.t.Fatalf("operation refused: %v", s.sendErr)
			}
		}
		s.datagrams(2)
	}},
	{"chores", func(s *script) {
		s.b.stalled = s.now() + 3e6
		must(s.b.s.SetRcvBuf(2000))
		for range 5 {
			s.a.send(s.b.ap, 90_000, extra{}) // those behind the first are refused
		}
		for range 1500 { // more than a turn withdraws
			if s.a2.send(s.b.ap, 100, extra{limit: time.Hour}) == nil { // with a limit: not in a run
				s.t.Fatal(s.sendErr)
			}
		}
		s.cancel(s.a2.flow(s.b.ap))
		c := s.b.c
		s.net.At(s.b.stalled, func() { c.wake() })
	}},
}

// TestSuccessionHere: a host's engine is asked to pause at every event in the life of messages,
// copies and chores of that host, and at every point within its turns, and replaced.
func TestSuccessionHere(t *testing.T) {
	chores, copies := 0, 0
	for _, c := range hereWork {
		for _, within := range []bool{false, true} {
			stride := 1
			if testing.Short() {
				stride = 7
			}
			for n := 0; hereAt(t, c.do, n, within, &chores, &copies); n += stride {
				if n > 3000 {
					t.Fatal("the work does not end")
				}
			}
		}
	}
	if !testing.Short() && (chores == 0 || copies == 0) { // the stride may pass over them
		t.Errorf("chores were in progress %d times, copies %d times", chores, copies)
	}
}

// hereAt is one such run, in which the engine is asked after n events or points. It reports
// whether there were so many, and counts whether chores and copies were in progress.
func hereAt(t *testing.T, do func(*script), n int, within bool, chores, copies *int) bool {
	t.Helper()
	s := newScriptWith(t, 1, func(o *options) { o.hosts, o.sockets, o.hardCap = 1, 3, 4<<10 })
	defer s.explain()
	h, asked := s.a.h, false
	do(s)
	if within {
		s.within = func(*host, string) {
			if n--; n < 0 && !asked {
				asked = true
				h.e.Halt()
			}
		}
	}
	for k := 0; !asked && (within || k < n); k++ {
		if !s.step() {
			s.within = nil
			s.finish()
			return false
		}
	}
	s.within = nil
	a, b := engine.UnderWay(h.e)
	*chores += min(a, 1)
	*copies += min(b, 1)
	h.replace(s)
	s.drain()
	s.finish()
	return true
}

// replace halts the engine, replaces it and has the next one go on.
func (h *host) replace(s *script) {
	h.e.Halt()
	h.kick()
	for !h.e.Halted() {
		if !s.step() {
			s.t.Fatalf("the engine does not stand still: %v", s.state())
		}
	}
	h.succeed(handover.Newest)
	h.e.Resume()
	h.kick()
}

// TestSuccessionAnywhere: a host's engine is replaced at every event in the life of messages
// and operations between two hosts. Applications on the host notice nothing but a pause. The
// versions of the state before the newest are those of daemons that are older: they are handed
// over at some of the events.
func TestSuccessionAnywhere(t *testing.T) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		stride := 1
		if v < handover.Newest {
			stride = 7
		}
		t.Run(fmt.Sprintf("version %d", v), func(t *testing.T) {
			haltedAnywhere(t, stride, func(h *host) { h.succeed(v) })
		})
	}
}

// TestSuccessionKilled: a process ends at every event in the life of messages and operations, at
// once or a few events before its host's engine is to stand still. That never keeps the engine
// from being handed over.
func TestSuccessionKilled(t *testing.T) {
	stride := 3
	if testing.Short() {
		stride = 11
	}
	for _, before := range []int{0, 1, 3, 20} { // events from the end of the process to Halt
		for n := 0; killedAt(t, n, before); n += stride {
			if n > 3000 {
				t.Fatal("the work does not end")
			}
		}
	}
}

// killedAt is one such run, in which the process ends after n events. It reports whether anything
// was left to be done by then.
func killedAt(t *testing.T, n, before int) (more bool) {
	t.Helper()
	s := newScript(t)
	defer s.explain()
	s.datagrams(6)
	s.back(1)
	s.a.send(s.b.ap, 300_000, extra{})
	s.issue(s.a, 3, abi.OpWrite, 20, false)
	s.issue(s.a, 2, abi.OpRead, 20, false)
	s.back(3)
	more = true
	for range n {
		more = more && s.step()
	}
	e := []*endpoint{s.a, s.b}[n%2]
	h := e.h
	e.c.kill()
	for range before {
		s.step()
	}
	h.replace(s)
	s.drain()
	s.finish()
	return more
}
