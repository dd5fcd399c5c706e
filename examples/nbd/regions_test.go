package main

import (
	"testing"
	"testing/synctest"
)

const regionSize = 1 << minRegion

func TestRegions(t *testing.T) {
	for _, c := range []struct {
		off, n uint64
		want   span
	}{
		{0, 1, span{0, 0}}, {regionSize - 1, 1, span{0, 0}}, {regionSize - 1, 2, span{0, 1}},
		{regionSize, regionSize, span{1, 1}}, {5, 3 * regionSize, span{0, 3}}, {regionSize, 0, span{1, 1}},
	} {
		if got := spanOf(c.off, c.n, minRegion); got != c.want {
			t.Errorf("%d bytes at %d: %v, want %v", c.n, c.off, got, c.want)
		}
	}
	r := newRegions(200)
	if r.next() != -1 || r.meets(span{0, 199}) {
		t.Error("a new set is not empty")
	}
	r.add(span{63, 65})
	o := newRegions(200)
	o.add(span{199, 199})
	r.merge(o)
	for _, want := range []int{63, 64, 65, 199, -1} {
		if got := r.next(); got != want {
			t.Errorf("next is %d, want %d", got, want)
		}
		if want >= 0 {
			if !r.meets(span{want, want}) || r.meets(span{66, 198}) || !r.has(span{want, want}) || r.has(span{want - 1, want}) && want == 63 {
				t.Errorf("meets at %d", want)
			}
			r.remove(want)
		}
	}
}

// TestGate: a region is closed when no change of it is in progress, and changes of it
// wait until it is open. Other changes do not.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.enter(span{1, 3})
		g.enter(span{3, 4})
		shut, entered := make(chan bool, 1), make(chan bool, 1)
		go func() { g.shut(3); shut <- true }()
		synctest.Wait()
		g.leave(span{1, 3})
		synctest.Wait()
		if len(shut) != 0 {
			t.Error("closed while a change is in progress")
		}
		g.leave(span{3, 4})
		<-shut
		g.enter(span{4, 9}) // does not wait
		go func() { g.enter(span{2, 5}); entered <- true }()
		synctest.Wait()
		if len(entered) != 0 {
			t.Error("a change of a closed region did not wait")
		}
		g.open()
		<-entered
		g.leave(span{4, 9})
		g.leave(span{2, 5})
		if len(g.inside) != 0 {
			t.Errorf("%v is inside", g.inside)
		}
	})
}

// TestGateBusy: what is in progress is busy, as often as it was entered.
func TestGateBusy(t *testing.T) {
	g := newGate()
	g.enter(span{1, 2})
	g.enter(span{2, 3})
	g.leave(span{1, 2})
	if b := g.busy(10); b.meets(span{0, 1}) || !b.has(span{2, 3}) || b.meets(span{4, 9}) {
		t.Errorf("busy: %b", b)
	}
}
