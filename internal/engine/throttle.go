package engine

import (
	"fmt"
	"time"

	"github.com/rdsd/rdsd/conn/tcp"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/rdstcp"
	"github.com/rdsd/rdsd/internal/stats"
)

// A peer that may speak for its host may still be broken or hostile. Credits bound what it
// has in progress, not how often it sends. So everything that it sends is counted against
// token buckets. A peer over a limit is read more slowly: it waits, and nothing is lost,
// reordered or broken.

// Rates are limits per second on what one peer sends, over all its lanes. 0 is no limit.
type Rates struct {
	Control  uint64 // units of conn.Arrived.Control, and what else is for no socket
	Messages uint64
	Bytes    uint64
}

type rateKind uint8

const (
	rateControl rateKind = iota
	rateMessages
	rateBytes
	numRates
)

var rateKeys = [numRates]string{"peers.control_per_s", "peers.messages_per_s", "peers.bytes_per_s"}

const (
	requestWork = 500 // control units of an incoming connection: a queue pair, a handshake
	slotsWork   = 16  // destinations that a congestion map is compared with, for one unit

	// A peer that was held goes on with what it may send in leastGo, so that
	// stopping and starting does not become the work.
	leastGo = 2_000_000
	// tellHeldNs is how often is told of one peer that it is held.
	tellHeldNs = 10_000_000_000
	// heldRevokes is how many times RevokeTimeout a peer has to give a key back
	// that is held, or was in the last of them: the answer waits like the rest.
	heldRevokes = 12
)

// throttle is the engine's part of that.
type throttle struct {
	e *Engine

	on    bool // there is a limit
	rates [numRates]bucketSize
	held  []*remote // by since when
	at    int64     // when to look at them
}

// bucketSize is what all buckets of a kind share.
type bucketSize struct {
	limit     uint64
	rate, max float64 // tokens a nanosecond, and at most
}

// bucket has at most max tokens. It may have a debt.
type bucket struct {
	tokens float64
	at     int64 // as of; 0: full
}

func (b *bucket) fill(s *bucketSize, now int64) {
	if b.at == 0 {
		b.tokens = s.max
	} else if now > b.at {
		b.tokens = min(s.max, b.tokens+s.rate*float64(now-b.at))
	}
	b.at = now
}

// ration is a peer's part of that.
type ration struct {
	buckets [numRates]bucket
	held    bool
	by      rateKind // the limit it was over last
	holds   uint64   // how often it was held
	since   int64    // when it was held last
	heldFor int64    // ns before that
	until   int64    // when it was let go last
	told    int64
	untold  uint64 // holds that were not told of
}

// valve is implemented by queue pairs that can stop receiving and count what they received,
// those of verbs/soft.
type valve interface {
	Hold(on bool)
	Meter(f func(n int))
}

// SetRates sets the limits of all peers, who begin anew.
func (e *Engine) SetRates(r Rates) {
	t := &e.throttle
	t.on = false
	for i, n := range [numRates]uint64{r.Control, r.Messages, r.Bytes} {
		s := &t.rates[i]
		*s = bucketSize{limit: n, rate: float64(n) / 1e9, max: float64(n) / 10}
		if rateKind(i) == rateControl {
			s.max = float64(n) // they come in bursts
		}
		t.on = t.on || n != 0
	}
	for _, h := range e.peers.hosts {
		h.ration.buckets = [numRates]bucket{}
	}
	e.throttle.letGo()
	for _, p := range e.peers.all {
		p.c.TakeArrived()
		p.c.meter()
	}
}

// meter has q's queue pair count what it receives, if bytes are limited.
func (q *byQP) meter() {
	v, ok := q.qp.(valve)
	q.charging = ok && q.e.throttle.rates[rateBytes].limit != 0
	if !ok {
		return
	}
	if !q.charging {
		v.Meter(nil)
		return
	}
	if q.charge == nil {
		q.charge = func(n int) { q.e.throttle.spend(q.p.remote, rateBytes, n) }
	}
	v.Meter(q.charge)
}

// took charges p for a SEND or a part of a stream of n bytes that was handled.
func (t *throttle) took(p *peer, n int) {
	if !t.on {
		return
	}
	a := p.c.TakeArrived()
	if a.Control != 0 {
		t.spend(p.remote, rateControl, a.Control)
	}
	if a.Messages != 0 {
		t.spend(p.remote, rateMessages, a.Messages)
	}
	if !p.c.metered() {
		t.spend(p.remote, rateBytes, n)
	}
}

// spend takes n tokens of a peer's, and holds it when it has none left.
func (t *throttle) spend(h *remote, k rateKind, n int) {
	s := &t.rates[k]
	if s.limit == 0 {
		return
	}
	b := &h.ration.buckets[k]
	b.fill(s, t.e.now)
	if b.tokens -= float64(n); b.tokens < 0 && !h.ration.held {
		t.hold(h, k)
	}
}

// mayRequest charges a peer for an incoming connection; false: it is over its
// limit.
func (t *throttle) mayRequest(h *remote) bool {
	s := &t.rates[rateControl]
	if s.limit == 0 {
		return true
	}
	b := &h.ration.buckets[rateControl]
	if b.fill(s, t.e.now); b.tokens < 0 {
		return false
	}
	t.spend(h, rateControl, requestWork)
	return true
}

// hold has nothing more taken of what a peer sends.
func (t *throttle) hold(h *remote, k rateKind) {
	e := t.e
	h.ration.held, h.ration.by, h.ration.since = true, k, e.now
	h.ration.holds++
	h.ration.untold++
	e.st.C[stats.PeerHolds]++
	if e.now-h.ration.told >= tellHeldNs || h.ration.told == 0 {
		e.cfg.Trace(h.place(), EventSlowed, fmt.Errorf("over %s = %d, %d times since this was said last", rateKeys[k], t.rates[k].limit, h.ration.untold))
		h.ration.told, h.ration.untold = e.now, 0
	}
	for _, p := range h.lanes {
		if p.c.Ready() {
			p.c.hold(true, e.now)
		}
	}
	t.hasHeld(h)
}

// hasHeld has a host that is held go on when it may.
func (t *throttle) hasHeld(h *remote) {

	t.held = append(t.held, h)
	if at := t.goesOn(h); t.at == 0 || at < t.at {
		t.at = at
		t.e.due.by(at)
	}
}

// goesOn is when a held peer may be read again.
func (t *throttle) goesOn(h *remote) int64 {
	e := t.e
	at := e.now
	for k := range h.ration.buckets {
		s, b := &t.rates[k], &h.ration.buckets[k]
		if s.limit == 0 {
			continue
		}
		b.fill(s, e.now)
		if want := min(s.max, max(1, s.rate*leastGo)); b.tokens < want {
			at = max(at, e.now+1+int64((want-b.tokens)/s.rate))
		}
	}
	return at
}

// letGo lets those go on that have tokens again.
func (t *throttle) letGo() {
	e := t.e

	t.at = 0
	left := t.held[:0]
	for _, h := range t.held {
		if at := t.goesOn(h); at > e.now {
			left = append(left, h)
			if t.at == 0 || at < t.at {
				t.at = at
			}
			continue
		}
		h.ration.held, h.ration.until = false, e.now
		h.ration.heldFor += e.now - h.ration.since
		for _, p := range h.lanes {
			p.c.hold(false, e.now)
		}
	}
	clear(t.held[len(left):])
	t.held = left
	e.due.by(t.at)
}

// hold stops what q receives, or lets it go on. Where the queue pair cannot stop, the
// peer gets no credits.
func (q *byQP) hold(on bool, now int64) {
	v, ok := q.qp.(valve)
	if ok {
		v.Hold(on)
	}
	if !ok || !on {
		q.Hold(on)
	}
	q.Excuse(now, on)
}

func (t *byTCP) hold(on bool, _ int64) {
	t.EachStream(func(s tcp.Stream) { s.(*rdstcp.Conn).Hold(on) })
}

// cameUp has a connection that is new know of the limits.
func (t *throttle) cameUp(p *peer) {
	p.c.meter()
	if p.ration.held {
		p.c.hold(true, t.e.now)
	}
}

// forget drops a peer that is gone.
func (t *throttle) forget(h *remote) {
	if h.ration.held {
		t.held = remove(t.held, h)
	}
}

// excused reports whether a peer may be late with its answers: it is held, or was
// until just now.
func (t *throttle) excused(h *remote) bool {
	e := t.e
	return h.ration.held || h.ration.until != 0 && e.now-h.ration.until < e.cfg.RevokeTimeout
}

// limitable: without a valve credits hold SENDs alone.
func (q *byQP) limitable() string {
	switch _, ok := q.qp.(valve); {
	case ok:
		return "all"
	case q.Kernel():
		return "none" // no credits, and the device takes what comes
	case q.qp == nil:
		return ""
	}
	return "sends"
}

func (t *byTCP) limitable() string { return "all" }

// heldTime is how long a peer was held, in all.
func (t *throttle) heldTime(h *remote) time.Duration {
	d := h.ration.heldFor
	if h.ration.held {
		d += t.e.now - h.ration.since
	}
	return time.Duration(d)
}

// limited says what the limits did to a peer.
func (t *throttle) limited(p *peer, i *ctl.PeerInfo) {
	r := &p.ration
	i.Limitable, i.Held, i.Holds, i.HeldTime = p.c.limitable(), r.held, r.holds, t.heldTime(p.remote)
	if r.holds > 0 {
		i.HeldBy = rateKeys[r.by]
	}
}

// EventSlowed is the event of a peer that is over a limit.
const EventSlowed = "slowed down"
