package loadgen

import (
	"context"
	"runtime"
	"time"
)

// pace is the timetable of an open loop: operation n is due at start + n·step, however long
// earlier operations take.
type pace struct {
	start time.Time
	step  float64 // ns, 0 if operations are always due
}

// pace is the timetable of one socket. The sockets take turns.
func (r *run) pace(socket int) pace {
	if r.p.Rate <= 0 {
		return pace{}
	}
	step := 1e9 * float64(r.p.Sockets) / r.p.Rate
	return pace{r.start.Add(time.Duration(step * float64(socket) / float64(r.p.Sockets))), step}
}

func (p pace) open() bool { return p.step > 0 }

func (p pace) due(n uint64) time.Time {
	return p.start.Add(time.Duration(float64(n) * p.step))
}

// sleepFuzz is how late a sleep may end. So the last part of a wait is spent yielding.
const sleepFuzz = 150 * time.Microsecond

// wait waits until operation n is due. It returns how many operations are due by then, n
// included, up to most. It returns 0 when ctx has ended.
func (p pace) wait(ctx context.Context, n uint64, most int) int {
	for ctx.Err() == nil {
		now := time.Now()
		left := p.due(n).Sub(now)
		switch {
		case left <= 0:
			behind := int(float64(-left)/p.step) + 1
			return min(behind, most)
		case left > sleepFuzz:
			t := time.NewTimer(left - sleepFuzz)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		default:
			runtime.Gosched()
		}
	}
	return 0
}
