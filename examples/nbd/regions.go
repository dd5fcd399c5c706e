package main

import (
	"math/bits"
	"slices"
	"sync"
)

// span is a range of regions, both ends included.
type span struct{ first, last int }

// spanOf returns the regions of n bytes at off, if a region has 1<<region bytes.
func spanOf(off, n uint64, region uint8) span {
	return span{int(off >> region), int((off + max(n, 1) - 1) >> region)}
}

// regions is a set of regions. A mirror marks missed changes by region.
type regions []uint64

func newRegions(n int) regions { return make(regions, (n+63)/64) }

func (r regions) add(s span) {
	for i := s.first; i <= s.last; i++ {
		r[i/64] |= 1 << (i % 64)
	}
}

func (r regions) remove(i int) { r[i/64] &^= 1 << (i % 64) }

// merge adds all of o.
func (r regions) merge(o regions) {
	for i := range o {
		r[i] |= o[i]
	}
}

// meets reports whether a region of s is in r.
func (r regions) meets(s span) bool {
	for i := s.first; i <= s.last; i++ {
		if r[i/64]&(1<<(i%64)) != 0 {
			return true
		}
	}
	return false
}

// has reports whether all regions of s are in r.
func (r regions) has(s span) bool {
	for i := s.first; i <= s.last; i++ {
		if r[i/64]&(1<<(i%64)) == 0 {
			return false
		}
	}
	return true
}

// fill adds the first n regions.
func (r regions) fill(n int) { r.add(span{0, n - 1}) }

// keep removes what is not in o.
func (r regions) keep(o regions) {
	for i := range o {
		r[i] &= o[i]
	}
}

// trim removes what is not among the first n regions.
func (r regions) trim(n int) {
	all := newRegions(n)
	all.fill(n)
	r.keep(all)
}

func (r regions) clone() regions { return slices.Clone(r) }

func (r regions) equal(o regions) bool { return slices.Equal(r, o) }

// next returns the first region of r, or -1 if r is empty.
func (r regions) next() int {
	for i, w := range r {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// gate keeps changes out of the region that is being copied. It is safe for concurrent use.
type gate struct {
	mu     sync.Mutex // guards the fields below
	cond   sync.Cond
	closed int         // the region that is closed, or -1
	inside map[int]int // changes in progress, by region
}

func newGate() *gate {
	g := &gate{closed: -1, inside: map[int]int{}}
	g.cond.L = &g.mu
	return g
}

// enter waits until no region of s is closed. Until leave, shut waits for regions of s.
func (g *gate) enter(s span) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s.first <= g.closed && g.closed <= s.last {
		g.cond.Wait()
	}
	for i := s.first; i <= s.last; i++ {
		g.inside[i]++
	}
}

func (g *gate) leave(s span) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := s.first; i <= s.last; i++ {
		if g.inside[i]--; g.inside[i] == 0 {
			delete(g.inside, i)
			if i == g.closed {
				g.cond.Broadcast()
			}
		}
	}
}

// busy returns those of n regions that have changes in progress.
func (g *gate) busy(n int) regions {
	r := newRegions(n)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.inside {
		r.add(span{i, i})
	}
	return r
}

// shut closes a region and waits until no change of it is in progress. The caller must call
// open before it closes another one.
func (g *gate) shut(region int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed = region; g.inside[region] > 0; {
		g.cond.Wait()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	g.closed = -1
	g.mu.Unlock()
	g.cond.Broadcast()
}
