package engine

import (
	"errors"
	"math"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
)

// rationed is a parting in which host 1 has ten tokens left for messages, and is held because of
// its control messages.
func rationed(t *testing.T) *parting {
	x := newParting(t)
	b := &x.h.ration.buckets[rateMessages]
	b.fill(&x.old.throttle.rates[rateMessages], x.old.now)
	b.tokens = 10
	return x
}

// TestRationHandedOver: what a host has left of its limits, and that it is held, goes over. The
// pause gives it nothing, and it goes on when it would have gone on without a hand-over.
func TestRationHandedOver(t *testing.T) {
	x := rationed(t)
	old, h := x.old, x.h
	h.ration.by, h.ration.untold, h.ration.heldFor, h.ration.until = rateMessages, 1, 2, 3
	goes := old.throttle.goesOn(h)
	state := peersOf(t, old)
	e, _ := x.heirOf(0, old, partingConfig)
	if err := adoptPeers(e, state); err != nil {
		t.Fatal(err)
	}
	n := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
	if n.ration != h.ration || !n.ration.held || n.ration.buckets[rateMessages].tokens != 10 {
		t.Errorf("%+v, was %+v", n.ration, h.ration)
	}
	if len(e.throttle.held) != 1 || e.throttle.at != goes || goes <= e.now {
		t.Errorf("%d hosts are held until %d, want %d; it is %d", len(e.throttle.held), e.throttle.at, goes, e.now)
	}
	var i ctl.PeerInfo
	if e.throttle.limited(n.lanes[0], &i); !i.Held || i.Holds != 1 || i.HeldBy != "peers.messages_per_s" {
		t.Errorf("rdsctl peers says %+v", i)
	}
	x.net.At(x.net.Now()+3600_000_000_000, func() {}) // the pause
	x.net.Step()
	e.Resume()
	e.halt.setClock(x.net.Now(), Wall(x.net.Now()))
	if e.throttle.letGo(); !n.ration.held {
		t.Error("let go for the length of the pause")
	}
	e.now = goes
	if e.throttle.letGo(); n.ration.held || len(e.throttle.held) != 0 {
		t.Errorf("held at %d: %+v", goes, n.ration)
	}
}

// TestRationOfOldState: a state of version 1 says nothing of limits, so hosts begin with full
// buckets. So do they where the limit is another one now.
func TestRationOfOldState(t *testing.T) {
	full := func(e *Engine, k rateKind) bool {
		n := e.peers.hosts[remoteKey{hostAddr(0), hostAddr(1)}]
		b := n.ration.buckets[k]
		b.fill(&e.throttle.rates[k], e.now)
		return b.tokens == e.throttle.rates[k].max
	}
	x := rationed(t)
	e, _ := x.heirOf(0, x.old, partingConfig)
	if err := adoptPeers(e, peersIn(t, x.old, 1)); err != nil {
		t.Fatal(err)
	}
	if !full(e, rateControl) || !full(e, rateMessages) || len(e.throttle.held) != 0 {
		t.Errorf("after a state of version 1 %d hosts are held", len(e.throttle.held))
	}

	x = rationed(t)
	c := partingConfig
	c.Rates.Messages /= 2
	state := peersOf(t, x.old)
	e, _ = x.heirOf(0, x.old, c)
	if err := adoptPeers(e, state); err != nil {
		t.Fatal(err)
	}
	if full(e, rateControl) || !full(e, rateMessages) {
		t.Error("the bucket of the limit that has changed, and no other, is to be full")
	}
}

// TestRationRefused: what no state can say of limits. A debt beyond what a state can say is
// handed over as the greatest.
func TestRationRefused(t *testing.T) {
	for name, change := range map[string]func(e *Engine, n *ration){
		"more than fits":    func(e *Engine, n *ration) { n.buckets[0] = bucket{math.Inf(1), e.now} },
		"no number":         func(e *Engine, n *ration) { n.buckets[0] = bucket{math.NaN(), e.now} },
		"a limit":           func(_ *Engine, n *ration) { n.by = numRates },
		"untold":            func(_ *Engine, n *ration) { n.untold = n.holds + 1 },
		"held, never":       func(_ *Engine, n *ration) { n.holds, n.untold = 0, 0 },
		"held later":        func(e *Engine, n *ration) { n.since = e.now + 1 },
		"held for too long": func(e *Engine, n *ration) { n.heldFor = e.now + 1 },
		"let go later":      func(e *Engine, n *ration) { n.until = e.now + 1 },
		"said before":       func(_ *Engine, n *ration) { n.told = -1 },
	} {
		x := rationed(t)
		change(x.old, &x.h.ration)
		w := handover.Write(handover.Newest)
		w.Begin(handover.TagTests)
		if name == "more than fits" || name == "no number" { // fill would make sense of it
			encodeTokens(w, x.old, x.h.ration.buckets[0].tokens)
		} else {
			(&crossing{Engine: x.old, s: w}).handOverRation(x.h)
		}
		w.End()
		r, err := handover.Read(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		r.Begin(handover.TagTests)
		e := x.old
		e.throttle.held = nil
		(&crossing{Engine: e, s: r}).handOverRation(&remote{addr: x.h.addr})
		if err := r.Err(); !errors.Is(err, handover.ErrFormat) || len(e.throttle.held) != 0 {
			t.Errorf("%s: %v, %d held", name, err, len(e.throttle.held))
		}
	}
	x := rationed(t)
	x.h.ration.buckets[rateControl].tokens = -1e300
	e, _ := x.heirOf(0, x.old, partingConfig)
	if err := adoptPeers(e, peersOf(t, x.old)); err != nil {
		t.Fatal(err)
	}
	if at := e.throttle.at; at <= e.now || at > e.now+2_000_000_000_000 {
		t.Errorf("held until %d, it is %d", at, e.now)
	}
}

// encodeTokens writes limits of which the first bucket has so many tokens.
func encodeTokens(s *handover.State, e *Engine, tokens float64) {
	s.Count(int(numRates), 0, 1)
	for k := range numRates {
		s.U64s(&e.throttle.rates[k].limit, new(math.Float64bits(tokens)))
	}
}

// FuzzAdoptPeers: whatever a state says of other hosts, an engine refuses it, or goes on.
func FuzzAdoptPeers(f *testing.F) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		f.Add(goldenState(f, "peers", v))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		x := newParting(t)
		e, _ := x.heirOf(0, x.old, partingConfig)
		if err := adoptPeers(e, state); err != nil {
			if !errors.Is(err, handover.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		e.Resume()
		for _, p := range e.peers.all {
			e.dirty.touch(p)
		}
		x.run()
	})
}
