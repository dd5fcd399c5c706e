package shm

import "time"

const (
	// slowYield: a yield that took longer gave the processor to somebody who
	// does not give it back soon. Blocking wakes up sooner then, for the
	// scheduler lets who was asleep in ahead of who only gave way.
	slowYield = int64(100 * time.Microsecond)
	// spinPause is how long nobody yields after that. Shorter pauses that grow
	// with each slow yield were worse on a busy machine.
	spinPause = int64(50 * time.Millisecond)
)

// SpinGuard notices that yielding the processor does not pay because others do
// not yield it back, and then forbids it for a while. Times are in nanoseconds
// of one clock. The zero value is ready; it belongs to one thread at a time.
type SpinGuard struct{ until int64 }

// May reports whether to yield at now.
func (g *SpinGuard) May(now int64) bool { return now >= g.until }

// Yielded notes a yield that began at from and was over at to. It reports
// whether to go on.
func (g *SpinGuard) Yielded(from, to int64) bool {
	if to-from <= slowYield {
		return true
	}
	g.until = to + spinPause
	return false
}
