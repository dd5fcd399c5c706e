package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the processor time that all threads of pids have used. Every process may read
// every other's clock.
func CPUTime(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers: user and system time
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err == nil {
			sum += time.Duration(ts.Nano())
		}
	}
	return sum
}
