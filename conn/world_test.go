package conn

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/verbs"
)

// The world: two hosts, a Conn each, driven by a seeded random scheduler. It
// checks every promise as it goes and fails with its seed.

type worldOpts struct {
	steps, msgs int
	credits     int
	bufs        int
	depth       int
	maxLen      int
	breaks      bool
	restarts    bool
	refusals    bool
	cancels     bool
	giveUps     bool
	unbound     bool
	badOps      bool // remote access errors
	postFails   bool
	pauses      bool
	carried     bool // atomics go with their messages
}

// sent is the record of one message the application sent.
type sent struct {
	id       uint64 // number of the message, global
	from     int    // host
	life     int    // of the sending host
	key      flow
	n        uint64 // position in its flow
	msg      *msg.Msg
	op       bool
	silent   bool
	bad      bool // its operation will be refused by the target
	added    int  // atomics carried out
	results  int  // of its atomic, told
	applied  int  // RDMA requests carried out, by target life
	appLife  int
	wrs      int
	asked    bool
	local    bool
	done     bool
	outcome  msg.Outcome
	got      int    // times delivered
	metBy    uint32 // who took it last
	bound    uint32 // what its sender was told of that
	internal bool
	cancel   bool
	gaveUp   bool
	ending   bool   // given up, and its work requests are under way
	buf      []byte // operation's local buffer
	lkey     uint32
}

type flow struct{ sport, dport uint16 }

type world struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	o       worldOpts
	net     *fakeNet
	now     int64
	h       [2]*worldHost
	all     []*sent
	byID    map[uint64]*sent
	flowN   map[string]uint64
	breaks  int
	restart int
	saw     map[string]int // what happened, over all lives
	log     []string
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log[max(0, len(w.log)-400):] {
		w.t.Log(l)
	}
	w.t.Fatalf("seed %d (replay: go test ./conn -run '%s' -v -conn.seed=%d): %s", w.seed, w.t.Name(), w.seed, fmt.Sprintf(format, args...))
}

func (w *world) logf(format string, args ...any) {
	if testing.Verbose() {
		w.log = append(w.log, fmt.Sprintf("%d ", w.now)+fmt.Sprintf(format, args...))
	}
}

func newWorld(t *testing.T, seed uint64, o worldOpts) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), o: o, net: newFakeNet(seed),
		now: 1, byID: make(map[uint64]*sent), saw: make(map[string]int), flowN: make(map[string]uint64)}
	for i, a := range []netip.Addr{addrA, addrB} {
		dev := w.net.host(a)
		h := &worldHost{w: w, i: i, unbound: make(map[uint16]bool)}
		h.baseHost = newBaseHost(dev, o.bufs, 16<<10, o.depth)
		h.payload = make([]byte, 1<<20)
		h.lkey = dev.reg(h.payload)
		if o.postFails {
			dev.postFail = func(wr []verbs.SendWR) int {
				if w.rng.IntN(200) == 0 {
					return w.rng.IntN(len(wr))
				}
				return len(wr)
			}
		}
		w.h[i] = h
		h.start()
	}
	return w
}

// chaos does one random bad or administrative thing.
func (w *world) chaos() {
	h := w.h[w.rng.IntN(2)]
	o := &w.o
	if o.pauses && !h.halting && w.rng.IntN(3) == 0 {
		w.logf("%d: halt", h.i)
		h.c.Halt(w.now)
		h.halting = true
	}
	port := uint16(200 + w.rng.IntN(3))
	switch k := w.rng.IntN(12); {
	case k == 0 && o.breaks:
		w.breaks++
		if w.rng.IntN(2) == 0 {
			w.logf("%d: reset", h.i)
			h.c.Reset(w.now, ErrDisconnected)
		} else if len(h.dev.qps) > 0 {
			w.logf("%d: cut", h.i)
			q := h.dev.qps[w.rng.IntN(len(h.dev.qps))]
			if q.peer != nil && w.rng.IntN(3) == 0 { // and the peer does not notice
				q.peer.peer, q.peer = nil, nil
			}
			q.toErr(true)
		}
	case k == 1 && o.restarts && w.rng.IntN(4) == 0:
		w.logf("%d: restart", h.i)
		w.restart++
		w.count(h)
		for len(h.dev.qps) > 0 {
			h.dev.qps[0].Destroy()
		}
		h.bufs = nil
		h.baseHost = newBaseHost(h.dev, o.bufs, 16<<10, o.depth)
		h.start()
		// What the old life got may come again to the new one: not at all,
		// since the sender must not replay it. got stays.
	case k < 5 && o.refusals:
		h.setFull(port, w.rng.IntN(2) == 0)
	case k == 5 && o.unbound:
		h.unbound[port] = !h.unbound[port]
	case k == 6 && o.cancels:
		sport := uint16(100 + w.rng.IntN(3))
		w.logf("%d: cancel %d", h.i, sport)
		n := w.rng.IntN(10)
		h.c.CancelMatching(func(m *msg.Msg) bool {
			s := m.Owner.(*sent)
			if s.internal || m.SPort != sport || n == 0 {
				return false
			}
			n--
			s.cancel = true
			return true
		}, msg.Cancelled)
	case k == 8 && o.giveUps:
		for i := len(w.all) - 1; i >= max(0, len(w.all)-20); i-- {
			if s := w.all[i]; !s.done && !slices.Contains(h.away, s.msg) && !s.ending && !s.internal && s.from == h.i && s.life == h.life && w.rng.IntN(4) == 0 {
				w.logf("%d: give up %d", h.i, s.id)
				s.gaveUp = true
				_, s.ending = h.c.GiveUp(s.msg)
			}
		}
	case k == 7:
		for p := range h.parts {
			if w.o.unbound && len(h.parts) == 1 {
				h.unbound[port] = true
				h.c.ForgetPartial(p)
				delete(h.parts, p)
			}
		}
	}
}

// run is the whole test of one seed.
func (w *world) run() {
	for i := 0; i < w.o.steps; i++ {
		w.now += int64(w.rng.IntN(20_000))
		if len(w.all) < w.o.msgs && w.rng.IntN(4) == 0 {
			w.h[w.rng.IntN(2)].send()
		}
		if w.rng.IntN(40) == 0 {
			w.chaos()
		}
		h := w.h[w.rng.IntN(2)]
		h.step()
		if i%16 == 0 {
			w.checkStops(&h.c.stops)
		}
	}
	// Calm: everything must come to its end.
	w.o.badOps, w.o.breaks = false, false
	for _, h := range w.h {
		for _, q := range h.dev.qps {
			if q.up && q.peer == nil {
				q.toErr(true)
			}
		}
		h.dev.postFail = nil
		h.unbound = make(map[uint16]bool)
		for p := uint16(200); p < 203; p++ {
			h.setFull(p, false)
		}
	}
	idle := 0
	for i := 0; !w.quiet(); i++ {
		if w.h[w.rng.IntN(2)].step() {
			idle = 0
		} else if idle++; idle > 200 {
			next := timer.Sooner(w.h[0].c.NextTimeout(), w.h[1].c.NextTimeout())
			if next == 0 {
				w.stuck("no timer")
			}
			w.now = max(w.now, next)
			idle = 0
		}
		if i > 2_000_000 {
			w.stuck("too many steps")
		}
	}
	w.final()
}

// count adds what a life of h saw.
func (w *world) count(h *worldHost) {
	st := h.c.Stats()
	for name, n := range map[string]uint64{
		"reset": st.ConnReset, "retransmitted": st.Retransmitted,
		"refusal": st.Refusals, "raced": st.ConnectRaced, "stale": st.ListenClosedStale,
		"throttled": st.TxThrottle, "ring full": st.TxRingFull, "op": st.SendRDMA, "cong": st.CongUpdateReceived,
	} {
		w.saw[name] += int(n)
	}
}

func (w *world) stuck(why string) {
	for i, h := range w.h {
		w.t.Logf("%d: %+v dirty=%v settling=%v gate=%d frag=%v head=%+v stops=%d", i, h.c.Info(), h.c.dirty,
			h.c.settling.on, h.c.settling.gate, h.c.out.frag != nil, h.c.head(), len(h.c.stops.list))
		for _, st := range h.c.stops.list {
			w.t.Logf("   stop %d stopped %v inflight %d queue %d remote %v", st.at.Num, st.stopped, st.at.InFlight, st.refused.N+st.behind.N, h.c.cong.remote.Test(st.at.Num))
		}
	}
	w.fatalf("stuck: %s", why)
}

// checkStops: the sums and the oldest of what ports have refused are those of their lists.
func (w *world) checkStops(s *portStops) {
	var want msg.Sum
	for _, st := range s.list {
		if !st.stopped && !st.keeps || s.of(st.at.Num) != st {
			w.fatalf("port %d is known, stopped %v, keeps %v", st.at.Num, st.stopped, st.keeps)
		}
		for _, l := range st.lists() {
			want.Datagrams += l.Datagrams()
			want.Bytes += l.Bytes
		}
	}
	if got := s.ports.Refused; got != want {
		w.fatalf("refused are %+v, want %+v", got, want)
	}
}

func (w *world) quiet() bool {
	for _, h := range w.h {
		if h.c.wanted() {
			return false
		}
	}
	for _, s := range w.all {
		if !s.done && s.life == w.h[s.from].life {
			return false
		}
	}
	return true
}

func (w *world) final() {
	for _, s := range w.all {
		if s.life != w.h[s.from].life {
			continue
		}
		if w.restart == 0 && !w.o.unbound && !w.o.cancels && !s.gaveUp && !s.op && !s.silent && s.got != 1 {
			w.fatalf("message %d delivered %d times, outcome %v", s.id, s.got, s.outcome)
		}
	}
	for i, h := range w.h {
		w.count(h)
		if n := h.c.Stats().ProtocolErrors; n != 0 {
			w.fatalf("host %d: %d protocol errors, last: %v", i, n, h.lastTrace)
		}
		st := h.c.Stats()
		if int(st.Lost) != h.ended[msg.Lost] || int(st.NoSock) != h.ended[msg.NoSock] {
			w.fatalf("host %d: %d lost, counted %d; %d without a socket, counted %d", i, h.ended[msg.Lost], st.Lost, h.ended[msg.NoSock], st.NoSock)
		}
		if h.out != 0 && h.c.State() == Down {
			w.fatalf("host %d: %d send buffers not returned", i, h.out)
		}
		if len(h.parts) > 0 && h.c.State() == Down {
			w.fatalf("host %d: parts left open", i)
		}
	}
}

func TestWorld(t *testing.T) {
	base := worldOpts{steps: 20_000, msgs: 1500, credits: 16, bufs: 64, depth: 32, maxLen: 40_000}
	cases := []struct {
		name string
		set  func(o *worldOpts)
		must []string // what has to happen, or the case tests nothing
	}{
		{"calm", func(o *worldOpts) {}, []string{"op", "ring full", "OpRefused"}},
		{"tiny credits", func(o *worldOpts) { o.credits, o.bufs = MinCredits, 3 }, []string{"throttled"}},
		{"breaks", func(o *worldOpts) { o.breaks = true },
			[]string{"reset", "retransmitted", "raced", "stale", "Dropped"}},
		{"restarts", func(o *worldOpts) { o.breaks, o.restarts = true, true },
			[]string{"Lost", "Unknown"}},
		{"refusals", func(o *worldOpts) { o.refusals = true }, []string{"refusal", "cong"}},
		{"refusals and breaks", func(o *worldOpts) { o.refusals, o.breaks = true, true },
			[]string{"refusal", "reset", "retransmitted"}},
		{"bad operations", func(o *worldOpts) { o.badOps, o.breaks = true, true }, []string{"OpFailed", "Dropped"}},
		{"limits", func(o *worldOpts) { o.giveUps, o.breaks, o.refusals = true, true, true }, []string{"Withdrawn", "GaveUp"}},
		{"post failures", func(o *worldOpts) { o.postFails = true }, []string{"reset", "Dropped"}},
		{"atomics", func(o *worldOpts) {
			o.carried, o.refusals, o.breaks, o.badOps, o.giveUps, o.restarts = true, true, true, true, true, true
		}, []string{"refusal", "retransmitted", "OpFailed", "Unknown", "Withdrawn", "carried"}},
		{"pauses", func(o *worldOpts) {
			o.pauses, o.refusals, o.breaks, o.unbound, o.carried = true, true, true, true, true
		}, []string{"refusal", "retransmitted", "NoSock", "handed over", "handed over with what waits", "handed over with a stopped port", "handed over with notices",
			"handed over with an atomic", "handed over with a result"}},
		{"pauses and everything", func(o *worldOpts) {
			o.breaks, o.refusals, o.cancels, o.unbound, o.badOps = true, true, true, true, true
			o.restarts, o.postFails, o.giveUps, o.pauses, o.carried = true, true, true, true, true
			o.credits, o.bufs = 5, 4
		}, []string{"refusal", "Cancelled", "NoSock", "Lost", "Unknown", "handed over"}},
		{"no restart", func(o *worldOpts) {
			o.breaks, o.refusals, o.cancels, o.unbound, o.badOps = true, true, true, true, true
		}, []string{"refusal", "Cancelled", "NoSock"}},
		{"everything", func(o *worldOpts) {
			o.breaks, o.refusals, o.cancels, o.unbound, o.badOps = true, true, true, true, true
			o.restarts, o.postFails, o.giveUps = true, true, true
			o.credits, o.bufs = 5, 4
		}, []string{"refusal", "Cancelled", "NoSock", "Lost", "Unknown"}},
	}
	seeds := *worldSeeds
	if testing.Short() {
		seeds = 2
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := base
			c.set(&o)
			if *worldSeed != 0 {
				newWorld(t, *worldSeed, o).run()
				return
			}
			saw := make(map[string]int)
			missing := func() string {
				for _, k := range c.must {
					if saw[k] == 0 {
						return k
					}
				}
				return ""
			}
			for seed := 1; seed <= seeds || seed <= *worldSeeds && missing() != ""; seed++ {
				w := newWorld(t, uint64(seed), o)
				w.run()
				for k, n := range w.saw {
					saw[k] += n
				}
			}
			if k := missing(); k != "" {
				t.Errorf("never saw %q", k)
			}
			t.Log(saw)
		})
	}
}
