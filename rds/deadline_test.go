package rds

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlineBehindClock: a timer that fires a little before its deadline, by
// the clock, does not lose it. Timers go by another clock than a deadline
// without a monotonic reading.
func TestDeadlineBehindClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		woken := 0
		d.set(time.Now().Add(time.Second), func() { woken++ })
		d.mu.Lock()
		d.at = d.at.Add(time.Millisecond)
		d.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if d.expired.Load() {
			t.Error("expired before its time")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !d.expired.Load() || woken != 1 {
			t.Errorf("expired %v, woken %d times", d.expired.Load(), woken)
		}
	})
}
