package engine

import (
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
)

func encodeTimes(w *handover.Writer, t *times) {
	for _, d := range [...]*stats.Times{&t.msgs, &t.ops} {
		w.Count(len(d.Counts))
		for _, n := range d.Counts {
			w.U64(n)
		}
		w.U64(d.Sum)
	}
}

func adoptTimes(r *handover.Reader, t *times) {
	for _, d := range [...]*stats.Times{&t.msgs, &t.ops} {
		if n := r.Count(len(d.Counts), 8); n != len(d.Counts) {
			r.Fail("a distribution of %d classes, not %d", n, len(d.Counts))
		}
		for i := range d.Counts {
			d.Counts[i] = r.U64()
		}
		d.Sum = r.U64()
	}
}
