package engine

import (
	"math"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// What a host has left of the limits on what it may send is handed over in version 2 of the
// state. The engine's clock stands still from Halt to Resume, so nobody gets anything for the
// length of a pause. A state of version 1 has none of it: the host begins with full buckets.

// mostDebt bounds the debt of a bucket in a state, in tokens. It is more than arrives before a
// host is held, and little enough for the engine's clock at any rate.
const mostDebt = 1 << 30

// encodeRation writes what h has left.
func (e *Engine) encodeRation(w *handover.Writer, h *remote) {
	r := h.ration
	if mutant.On(mutant.HandoverRation) {
		r = ration{}
	}
	w.Count(len(r.buckets))
	for k := range r.buckets {
		s, b := &e.throttle.rates[k], &r.buckets[k]
		b.fill(s, e.now)
		w.U64(s.limit)
		w.U64(math.Float64bits(max(b.tokens, -mostDebt)))
	}
	w.Bool(r.held)
	w.U8(uint8(r.by))
	w.U64(r.holds)
	w.U64(r.untold)
	w.I64(r.since)
	w.I64(r.heldFor)
	w.I64(r.until)
	w.I64(r.told)
}

// adoptRation reads what encodeRation wrote. Where the limit is another now, the bucket is full,
// as after any change of a limit.
func (e *Engine) adoptRation(r *handover.Reader, h *remote) {
	n := &h.ration
	if got := r.Count(len(n.buckets), 8+8); got != len(n.buckets) {
		r.Fail("%d limits of %v, not %d", got, h.addr, len(n.buckets))
		return
	}
	for k := range n.buckets {
		s, limit, tokens := &e.throttle.rates[k], r.U64(), math.Float64frombits(r.U64())
		if limit != s.limit || limit == 0 {
			continue
		}
		if !(tokens >= -mostDebt && tokens <= s.max) { // NaN is neither
			r.Fail("%v has %v left of %s, at most %v", h.addr, tokens, rateKeys[k], s.max)
			return
		}
		n.buckets[k] = bucket{tokens: tokens, at: e.now}
	}
	n.held, n.by = r.Bool(), rateKind(r.U8())
	n.holds, n.untold = r.U64(), r.U64()
	n.since, n.heldFor, n.until, n.told = r.I64(), r.I64(), r.I64(), r.I64()
	for _, at := range [...]int64{n.since, n.heldFor, n.until, n.told} {
		if at < 0 || at > e.now {
			r.Fail("%v was held at %d ns or for so long, it is %d ns", h.addr, at, e.now)
		}
	}
	if n.by >= numRates || n.untold > n.holds || n.held && n.holds == 0 {
		r.Fail("%v was held %d times, %d untold, last by limit %d", h.addr, n.holds, n.untold, n.by)
	}
	if r.Err() != nil {
		n.held = false
	}
	if n.held {
		e.hasHeld(h)
	}
}
