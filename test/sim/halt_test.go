package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// haltScenario is the workload with daemons that pause again and again, as for a planned
// restart, and go on from any stage of the pause. All else that the workload breaks may
// happen before, in and after a pause.
var haltScenario = &scenario{
	name:    "halt",
	options: func(r *rand.Rand, o *options) { o.halt, o.succeed = pick(r, 5, 20, 60), r.IntN(2) == 0 },
	play:    func(w *world) { w.run() },
	seen: []string{"halted", "resumed before it stood still", "resumed for a request", "halted with peers up",
		"submitted to a halted daemon", "two halted", "taken over"},
}

// TestSimHalt: whatever is in progress when a daemon pauses, nothing is lost, doubled, put
// out of order or unknown that would not be without the pause.
func TestSimHalt(t *testing.T) {
	if raceEnabled {
		t.Skip("TestSimCalm halts under the race detector, too, without the faults")
	}
	haltScenario.test(t)
}

// calmScenario has no faults at all but pauses: then nothing may end but well.
var calmScenario = &scenario{
	name: "calm",
	options: func(r *rand.Rand, o *options) {
		calm := options{halt: pick(r, 20, 60), hosts: o.hosts, clients: o.clients, sockets: o.sockets, timing: o.timing,
			maxSend: o.maxSend, sendBufs: o.sendBufs, recvBufs: o.recvBufs, credits: o.credits, hardCap: o.hardCap, overflow: o.overflow,
			revokeTimeout: 5e9, settleTimeout: 30e9, silence: 30e9, sndBuf: o.sndBuf, rcvBuf: o.rcvBuf, params: o.params,
			opShare: o.opShare, localShare: o.localShare, big: o.big, small: o.small, burst: o.burst, gap: o.gap, stall: o.stall,
			lanes: o.lanes, laneV: o.laneV, atomics: o.atomics, pairs: o.pairs, zero: o.zero, monitor: o.monitor, masked: true, held: o.held}
		*o = calm
	},
	play: func(w *world) {
		w.run()
		for _, f := range w.flowsV {
			if f.lost > 0 {
				broken("pause", "%v to %v: %d lost", f.src.ap, f.dst, f.lost)
			}
		}
	},
	seen: []string{"halted", "halted with peers up"},
}

// TestSimCalm: where daemons do nothing but pause, no application is told of a loss and
// no outcome is unknown (op.judge).
func TestSimCalm(t *testing.T) { calmScenario.test(t) }

// pausing is a host's pause.
type pausing struct {
	on, still bool
	at        int64
}

// halt has the host's daemon pause, and go on at some time.
func (h *host) halt() {
	w := h.w
	if h.pausing.on {
		return
	}
	h.pausing = pausing{on: true, at: w.now()}
	w.log(h, "halt", 0, 0, 0)
	if w.opt.calm() {
		w.breaks++ // as a reset is one
	}
	for _, x := range w.hosts {
		if x != h && x.up && x.pausing.on {
			w.saw("two halted")
		}
	}
	begin := func() {
		if h.pausing.on && h.pausing.at == w.now() {
			h.e.Halt()
		}
	}
	if w.rFault.IntN(2) == 0 {
		begin()
	} else {
		h.e.Do(begin) // in the middle of a turn
		h.turn()
	}
	h.kick()
	if w.rFault.IntN(4) == 0 {
		h.resumeIn(below(w.rFault, pick[int64](w.rFault, 2_000, 50_000, 2_000_000)))
	}
}

// resumeIn has the daemon go on after ns.
func (h *host) resumeIn(ns int64) {
	w, life, at := h.w, h.life, h.pausing.at
	w.net.At(w.now()+ns, func() {
		if h.life == life && h.up && h.pausing.at == at {
			h.resume()
		}
	})
}

// stands notes that the daemon stands still, once, and what must be so then.
func (h *host) stands() {
	w := h.w
	if !h.pausing.on || h.pausing.still || !h.e.Halted() {
		return
	}
	h.pausing.still = true
	w.saw("halted")
	w.log(h, "still", w.now()-h.pausing.at, 0, 0)
	for _, i := range engine.Conns(h.e) {
		if i.State != conn.Down || i.OutstandingWRs != 0 {
			broken("pause", "host %d stands still, %v is %v with %d work requests", h.n, i.Remote, i.State, i.OutstandingWRs)
		}
		if i.Met {
			w.saw("halted with peers up")
		}
	}
	w.meet()
	h.resumeIn(below(w.rFault, pick[int64](w.rFault, 1_000, 1_000_000, 300_000_000)))
}

// resume has the daemon go on, if it pauses.
func (h *host) resume() {
	if h.endTurn(); !h.pausing.on || !h.up {
		return
	}
	if !h.pausing.still {
		h.w.saw("resumed before it stood still")
	}
	h.w.log(h, "resume", h.w.now()-h.pausing.at, 0, 0)
	if h.w.opt.succeed && h.pausing.still {
		h.succeedAs(h.anyVersion())
	}
	h.pausing.on, h.pausing.still = false, false
	h.e.Resume()
	h.tcp.accepts()
	h.kick()
}

// calm reports whether nothing but pauses disturbs.
func (o *options) calm() bool {
	return o.halt > 0 && o.reset+o.crash+o.kill+o.rebind+o.hole+o.cancel == 0
}

// TestHaltAnywhere lets a daemon pause at every event in the life of messages and
// operations. Applications on its host must not notice anything but the pause.
func TestHaltAnywhere(t *testing.T) { haltedAnywhere(t, 1, func(*host) {}) }

// haltedAnywhere halts a daemon at every stride-th event, runs still while it stands still, and has
// it go on.
func haltedAnywhere(t *testing.T, stride int, still func(*host)) {
	for _, c := range []struct {
		name string
		do   func(*script)
	}{
		{"datagrams", func(s *script) { s.datagrams(10); s.back(3) }},
		{"long", func(s *script) { s.a.send(s.b.ap, 300_000, extra{}); s.datagrams(1); s.back(1) }},
		{"write", func(s *script) { s.issue(s.a, 3, abi.OpWrite, 20, false); s.datagrams(1) }},
		{"read", func(s *script) { s.datagrams(1); s.issue(s.a, 3, abi.OpRead, 20, false) }},
	} {
		for _, who := range []string{"sender", "receiver"} {
			t.Run(c.name+", the "+who, func(t *testing.T) {
				stride := stride
				if testing.Short() {
					stride = 7
				}
				for n := 0; ; n += stride {
					if !haltAt(t, c.do, still, who == "sender", n) {
						break
					}
					if n > 2000 {
						t.Fatal("the work does not end")
					}
				}
			})
		}
	}
}

func (s *script) back(k int) {
	for range k {
		if s.b.send(s.a.ap, 50, extra{}) == nil {
			s.t.Fatal(s.sendErr)
		}
	}
}

// haltAt is one such run, with the pause after n events. It reports whether anything was left
// to be done by then.
func haltAt(t *testing.T, do func(*script), still func(*host), sender bool, n int) (more bool) {
	t.Helper()
	s, h, before := newPausing(t, sender)
	defer s.explain()
	do(s)
	more = true
	for range n {
		if more = s.step(); !more {
			break
		}
	}
	h.e.Halt()
	h.kick()
	s.goesOn(h, still, before, fmt.Sprintf("event %d", n))
	return more && !t.Failed()
}

// newPausing makes hosts that know each other, and returns the one that is to pause and what the
// sender was told of its peer.
func newPausing(t *testing.T, sender bool) (s *script, h *host, before [2]uint64) {
	t.Helper()
	s = newScript(t)
	s.datagrams(1)
	s.back(1)
	s.drain()
	h = s.a.h
	if !sender {
		h = s.b.h
	}
	f := s.a.flow(s.b.ap)
	return s, h, [2]uint64{f.downs, f.ups}
}

// goesOn has h, which was asked to pause, do so, runs still while it stands still, and has it go
// on. Its applications must not notice anything but the pause.
func (s *script) goesOn(h *host, still func(*host), before [2]uint64, when string) {
	t := s.t
	t.Helper()
	for !h.e.Halted() {
		if !s.step() {
			t.Fatalf("%s: the engine does not stand still: %v", when, s.state())
		}
	}
	until := s.now() + 100e6
	s.net.At(until, func() { still(h); h.e.Resume(); h.kick() })
	s.drain()
	fates := s.fates()
	for _, f := range s.flowsV {
		missing := len(f.msgs) - f.delivered
		if f.src == s.a && f.dst == s.b.ap {
			missing -= fates[rds.Dropped] // their messages
		}
		if missing != 0 || f.lost > 0 {
			t.Errorf("%s: %v to %v: %d of %d delivered, %d lost; statuses %v", when, f.src.ap, f.dst, f.delivered, len(f.msgs), f.lost, fates)
		}
		if f.src.h == h && f.src == s.a && before != [2]uint64{f.downs, f.ups} {
			t.Errorf("%s: %v to %v: PeerDown %d times, PeerUp %d", when, f.src.ap, f.dst, f.downs-before[0], f.ups-before[1])
		}
	}
	if ok := fates[rds.Success]; h == s.a.h && ok != len(s.ops) || ok+fates[rds.Dropped] != len(s.ops) {
		t.Errorf("%s: statuses %v of %d operations", when, fates, len(s.ops))
	}
	s.finish()
}

// TestHaltTime: no time passes for a daemon that stands still, so a message's limit begins to
// run again when it goes on.
func TestHaltTime(t *testing.T) {
	for _, c := range []struct {
		before, pause, after int64 // ms
		delivered            int
	}{{10, 5000, 10, 1}, {10, 5000, 300, 0}} {
		s := newScript(t)
		s.disconnect()
		if s.a.send(s.b.ap, 100, extra{limit: 200 * time.Millisecond}) == nil {
			t.Fatal(s.sendErr)
		}
		s.run(c.before * 1e6)
		s.a.h.e.Halt()
		s.a.h.kick()
		s.run(c.pause * 1e6)
		if !s.a.h.e.Halted() {
			t.Fatal("the engine does not stand still")
		}
		s.a.h.e.Resume()
		s.a.h.kick()
		s.run(c.after * 1e6)
		s.mend()
		s.drain()
		if f := s.a.flow(s.b.ap); f.delivered != c.delivered || int(f.gaveUp) != 1-c.delivered {
			t.Errorf("%+v: %d delivered, %d given up", c, f.delivered, f.gaveUp)
		}
		s.finish()
	}
}

// TestHaltRequest: a peer whose connection was broken off by a pause asks for another one at
// once, while the queue pair here still empties. Its request is answered after the pause.
func TestHaltRequest(t *testing.T) {
	s := newScript(t)
	defer s.explain()
	s.datagrams(1)
	s.back(1)
	s.drain()
	s.slow() // the completions that empty the queue pair come after the request
	s.net.Timing.Flush = s.net.Timing.Local
	s.net.Timing.Learn = sim.Range{Min: 1000, Max: 2000}
	asked := false
	s.net.Hook = func(p sim.Point) sim.Action {
		asked = asked || p.Kind == sim.ConnectRequest
		return sim.Pass
	}
	s.back(5)
	s.run(100_000)
	h := s.b.h
	h.e.Halt()
	h.kick()
	s.datagrams(5)
	s.run(8e6)
	if !asked || h.e.Halted() {
		t.Fatalf("the peer has asked: %v, the engine stands still: %v", asked, h.e.Halted())
	}
	s.run(100e6)
	if !h.e.Halted() {
		t.Fatalf("the engine does not stand still: %v", s.state())
	}
	h.e.Resume()
	h.kick()
	s.drain()
	if f := s.a.flow(s.b.ap); f.delivered != 6 || f.downs != 1 {
		t.Errorf("%d delivered, PeerDown %d times", f.delivered, f.downs)
	}
	s.finish()
}

// TestHaltMark: a process that had no room for statuses reads while its daemon pauses. The mark
// that waits for them rises after the pause, however long that is.
func TestHaltMark(t *testing.T) {
	const ops = 20
	s := newScriptWith(t, 1, func(o *options) { o.params.EventEntries = 8 })
	defer s.explain()
	c, h := s.a.c, s.a.h
	c.deaf = s.now() + 10e6
	s.issue(s.a, ops, abi.OpWrite, 20, false)
	s.run(1e6)
	if c.at.Waiting() == 0 {
		t.Fatal("no status waits for room")
	}
	h.e.Halt()
	h.kick()
	c.deaf = 0
	c.wake()
	for range 100 { // with turns: processes and peers have a daemon turn that stands still, too
		s.run(markBound / 50)
		h.kick()
	}
	if !h.e.Halted() || c.at.Waiting() == 0 {
		t.Fatalf("the engine stands still: %v; %d statuses wait", h.e.Halted(), c.at.Waiting())
	}
	h.e.Resume()
	h.kick()
	s.drain()
	s.mark(ops)
	s.want(rds.Success, ops)
	s.finish()
}
