package shm

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestChanWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() int64 { return int64(time.Since(start)) }
		w := NewChanWaiter(now)

		w.Wait(int64(3 * time.Second))
		if now() != int64(3*time.Second) {
			t.Errorf("waited until %v, want the deadline", time.Duration(now()))
		}
		w.Wait(int64(time.Second)) // is over
		if now() != int64(3*time.Second) {
			t.Error("a deadline that has passed still waits")
		}

		w.Ring() // before the wait: remembered, once
		w.Ring()
		w.Wait(0)
		go func() {
			time.Sleep(time.Second)
			w.Ring()
		}()
		w.Wait(0)
		if now() != int64(4*time.Second) {
			t.Errorf("woken at %v, want when it rang", time.Duration(now()))
		}
		w.Close()
	})
}
