package loadgen

import "time"

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

// behind is how many operations are due by now, of n and those after it.
func (p pace) behind(now time.Time, n uint64) int {
	left := p.due(n).Sub(now)
	if left > 0 {
		return 0
	}
	return int(float64(-left)/p.step) + 1
}

// sleepFuzz is how late a wait may end. So the last part of a wait for an operation is spent
// yielding.
const sleepFuzz = 150 * time.Microsecond
