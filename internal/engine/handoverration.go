package engine

import "math"

// What a host has left of the limits on what it may send is handed over in version 2 of the
// state. The engine's clock stands still from Halt to Resume, so nobody gets anything for the
// length of a pause. A state of version 1 has none of it: the host begins with full buckets.

// mostDebt bounds the debt of a bucket in a state, in tokens. It is more than arrives before a
// host is held, and little enough for the engine's clock at any rate.
const mostDebt = 1 << 30

// handOverRation has what h has left go over. Where the limit is another one now, the bucket is full,
// as after any change of a limit.
func (x *crossing) handOverRation(h *remote) {
	s, n := x.s, h.ration
	if got := s.Count(len(n.buckets), len(n.buckets), 8+8); got != len(n.buckets) {
		s.Fail("%d limits of %v, not %d", got, h.addr, len(n.buckets))
		return
	}
	for k := range n.buckets {
		rate, b := &x.throttle.rates[k], &n.buckets[k]
		if !s.Reads() {
			b.fill(rate, x.now)
		}
		limit, bits := rate.limit, math.Float64bits(max(b.tokens, -mostDebt))
		s.U64(&limit)
		s.U64(&bits)
		if !s.Reads() || limit != rate.limit || limit == 0 {
			continue
		}
		tokens := math.Float64frombits(bits)
		if !(tokens >= -mostDebt && tokens <= rate.max) { // NaN is neither
			s.Fail("%v has %v left of %s, at most %v", h.addr, tokens, rateKeys[k], rate.max)
			return
		}
		*b = bucket{tokens: tokens, at: x.now}
	}
	s.Bool(&n.held)
	s.U8((*uint8)(&n.by))
	s.U64(&n.holds)
	s.U64(&n.untold)
	s.I64(&n.since)
	s.I64(&n.heldFor)
	s.I64(&n.until)
	if s.I64(&n.told); !s.Reads() {
		return
	}
	for _, at := range [...]int64{n.since, n.heldFor, n.until, n.told} {
		if at < 0 || at > x.now {
			s.Fail("%v was held at %d ns or for so long, it is %d ns", h.addr, at, x.now)
		}
	}
	if n.by >= numRates || n.untold > n.holds || n.held && n.holds == 0 {
		s.Fail("%v was held %d times, %d untold, last by limit %d", h.addr, n.holds, n.untold, n.by)
	}
	if s.Err() != nil {
		return
	}
	if h.ration = n; n.held {
		x.throttle.hasHeld(h)
	}
}
