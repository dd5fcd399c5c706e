package stats

import (
	"time"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

// SetInfo changes who the writer is: the instance and start of the daemon before.
func (b *Block) SetInfo(info Info) {
	b.mem[wPID], b.mem[wInstance], b.mem[wStart] = uint64(info.PID), info.Instance, uint64(info.Start)
}

// SetInfo is Block.SetInfo for the lists.
func (l *Lists) SetInfo(info Info) {
	l.mem[lPID], l.mem[lInstance] = uint64(info.PID), info.Instance
}

// Encode writes what was counted. Counters go by their names, because a daemon of another
// version has others. Gauges are not written: they follow from the rest of the state.
func (b *Block) Encode(w *handover.Writer) {
	w.Begin(handover.TagStats)
	n := 0
	for c := range NumCounters {
		if !c.Gauge() {
			n++
		}
	}
	w.Count(n)
	for c := range NumCounters {
		if !c.Gauge() {
			w.String(c.String())
			w.U64(b.C[c])
		}
	}
	w.U64(b.turns)
	w.U64(b.turnSum)
	w.U64(b.turnMax)
	w.Count(Buckets)
	for _, v := range b.hist {
		w.U64(v)
	}
	for _, t := range []*Times{&b.Messages, &b.Operations} {
		w.U64(t.Sum)
		w.Count(TimeBuckets)
		for _, v := range t.Counts {
			w.U64(v)
		}
	}
	w.End()
}

// Adopt has b, in which nothing is counted yet but gauges, go on from what Encode wrote, and
// publishes it. A counter that this version does not have is passed over.
func (b *Block) Adopt(r *handover.Reader) {
	byName := map[string]Counter{}
	for c := range NumCounters {
		if !c.Gauge() {
			byName[c.String()] = c
		}
	}
	r.Begin(handover.TagStats)
	seen := map[string]bool{}
	for i := range r.Count(maxCounters, 4+8) {
		name, v := r.String(maxName), r.U64()
		if seen[name] || !validName([]byte(name)) {
			r.Fail("a counter %q, or twice", name)
			return
		}
		seen[name] = true
		c, ok := byName[name]
		if mutant.On(mutant.CountersByPlace) {
			c, ok = Counter(i), true
		}
		if ok {
			b.C[c] = v
		}
	}
	b.turns, b.turnSum, b.turnMax = r.U64(), r.U64(), r.U64()
	adoptCounts(r, b.hist[:])
	for _, t := range []*Times{&b.Messages, &b.Operations} {
		t.Sum = r.U64()
		adoptCounts(r, t.Counts[:])
	}
	var sum uint64
	for _, v := range b.hist {
		sum += v
	}
	if sum != b.turns {
		r.Fail("%d turns, %d by their duration", b.turns, sum)
	}
	r.End()
	if r.Err() == nil {
		b.Publish(time.Now().UnixNano())
	}
}

func adoptCounts(r *handover.Reader, to []uint64) {
	if n := r.Count(len(to), 8); n != len(to) {
		r.Fail("%d buckets, not %d", n, len(to))
	}
	for i := range to {
		to[i] = r.U64()
	}
}
