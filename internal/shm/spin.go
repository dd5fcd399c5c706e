package shm

import "time"

const (
	// slowYield is the duration above which a yield was slow: another program got the
	// processor and kept it. Blocking wakes up sooner then, because the scheduler prefers a
	// thread that slept to one that only yielded.
	slowYield = int64(100 * time.Microsecond)
	// spinPause is how long nobody yields after a slow yield. Shorter pauses that grow with
	// each slow yield were worse on a busy machine.
	spinPause = int64(50 * time.Millisecond)
)

// SpinGuard forbids yielding for a while when other programs do not give the processor
// back. Times are in nanoseconds of one clock. The zero value is ready to use. It belongs
// to one thread at a time.
type SpinGuard struct{ until int64 }

// May reports whether the thread may yield at now.
func (g *SpinGuard) May(now int64) bool { return now >= g.until }

// Yielded notes a yield from from to to. It reports whether the thread may go on yielding.
func (g *SpinGuard) Yielded(from, to int64) bool {
	if to-from <= slowYield {
		return true
	}
	g.until = to + spinPause
	return false
}
