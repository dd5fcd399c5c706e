package e2e

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mostPause bounds the pause of each of these upgrades, as the daemon reports it, on a machine on which a
// thread that computes always has a processor. It is some 10 to 30 ms there (docs/operations.md). What waits
// for a process waits for longer. Elsewhere the pause may be longer by as much as the work of such a thread
// takes longer meanwhile.
const mostPause = 500 * time.Millisecond

// upgradeWithin is upgrade within mostPause.
func (h *host) upgradeWithin() {
	h.t.Helper()
	slower := startControl(h.t)
	u := h.upgrade()
	most := time.Duration(float64(mostPause) * slower())
	if u.Pause > most {
		h.t.Errorf("the pause took %v, %v are what this machine may need", u.Pause, most)
	} else {
		h.t.Logf("a pause of %v of at most %v", u.Pause.Round(time.Millisecond/10), most.Round(time.Millisecond/10))
	}
}

// startControl has a thread compute until slower is called, which returns how much longer the thread has
// taken than it has had a processor.
func startControl(t *testing.T) (slower func() float64) {
	var stop atomic.Bool
	ratio := make(chan float64, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		start, before := time.Now(), threadTime()
		for !stop.Load() {
		}
		ratio <- float64(time.Since(start)) / float64(max(threadTime()-before, time.Microsecond))
	}()
	end := sync.OnceValue(func() float64 {
		stop.Store(true)
		return max(<-ratio, 1)
	})
	t.Cleanup(func() { end() })
	return end
}

// threadTime is the time that the calling thread has had a processor.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}
