package sim

import "net/netip"

// A black hole between two hosts: packets vanish, and nothing tells either end.
// As TCP and RC do, the ends send again what was lost, so what is in flight
// waits until the hole closes; connections that are being set up time out.

// pathKey is a pair of hosts, the smaller address first.
type pathKey struct{ a, b netip.Addr }

func pathOf(a, b netip.Addr) pathKey {
	a, b = a.Unmap(), b.Unmap()
	if b.Less(a) {
		a, b = b, a
	}
	return pathKey{a, b}
}

// Swallow opens or closes a black hole between two hosts. While it is open
// nothing arrives in either direction, and neither end learns that the other has
// broken off, closed or crashed.
func (n *Network) Swallow(a, b netip.Addr, open bool) {
	k := pathOf(a, b)
	if n.holes[k] == open {
		return
	}
	n.note(traceHole, 0, uint64(len(n.holes)))
	if open {
		if n.holes == nil {
			n.holes = map[pathKey]bool{}
		}
		n.holes[k] = true
		return
	}
	delete(n.holes, k)
	for _, x := range []netip.Addr{k.a, k.b} {
		if h := n.hosts[x]; h != nil && h.dev != nil {
			for _, q := range h.dev.qps {
				q.out.surface()
				q.resp.surface()
			}
		}
	}
	news := n.swallowed
	n.swallowed = nil
	for _, f := range news {
		n.after(n.rand.gap.between(n.Timing.Gap), f)
	}
}

// Swallows reports whether a hole swallows everything from a to b.
func (n *Network) Swallows(a, b netip.Addr) bool {
	return len(n.holes) > 0 && n.holes[pathOf(a, b)]
}

// cross runs f, which is news from a for b, unless a hole is between them. It then
// keeps f until the hole closes.
func (n *Network) cross(a, b netip.Addr, f func()) {
	if !n.Swallows(a, b) {
		f()
		return
	}
	n.swallowed = append(n.swallowed, func() { n.cross(a, b, f) })
}

// sunk reports whether the head of p falls into a hole, and keeps it if so.
func (p *pipe) sunk() bool {
	q := p.qp
	p.isSunk = q.peer != nil && p.net.Swallows(q.dev.addr, q.peer.dev.addr)
	return p.isSunk
}

// surface sends again what fell into a hole, which has closed.
func (p *pipe) surface() {
	if !p.isSunk {
		return
	}
	p.isSunk = false
	if p.n > 0 && !p.armed && !p.stalled { // behind the news: nothing overtakes a set-up
		t := &p.net.Timing.Gap
		p.arm(p.net.now + t.Max + p.net.rand.gap.between(*t))
	}
}
