package soft

import (
	"net/netip"
	"sync"
)

// places are for incoming connections in set-up, or being turned away. A source gets one more while it has
// fewer than are free. So one source alone has at most half of them, and the next
// one finds some. Any goroutine may use it.
type places struct {
	mu      sync.Mutex
	free    int
	sources map[netip.Prefix]int // none that has none
}

func newPlaces(n int) *places { return &places{free: n, sources: map[netip.Prefix]int{}} }

// sourceOf returns what counts as one source: an IPv4 address, or an IPv6 /64.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap(); a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}

// take takes a place for a. give gives it back. It returns false if there is none
// for a.
func (p *places) take(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	src := sourceOf(a)
	if p.free == 0 || p.sources[src] >= p.free {
		return false
	}
	p.free--
	p.sources[src]++
	return true
}

func (p *places) give(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	src := sourceOf(a)
	p.free++
	if p.sources[src]--; p.sources[src] == 0 {
		delete(p.sources, src)
	}
}
