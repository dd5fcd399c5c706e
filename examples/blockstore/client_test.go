package main

import (
	"errors"
	"testing"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

func TestAgain(t *testing.T) {
	c := &copier{Client: &store.Client{Options: store.Options{Wait: store.Patience{GiveUp: time.Minute}}}}
	now := time.Now()
	fresh, old := job{start: now, attempt: 1}, job{start: now.Add(-2 * time.Minute), attempt: 9}
	tired := job{start: now, attempt: retryLimit}
	for _, x := range []struct {
		name string
		err  error
		j    job
		want bool
	}{
		{"dropped", store.Failf(store.StatusRetry, "x"), fresh, true},
		{"dropped for too long", store.Failf(store.StatusRetry, "x"), old, false},
		{"grant taken back", store.Failf(store.StatusGrantOver, "x"), fresh, true},
		{"busy", store.Failf(store.StatusBusy, "x"), tired, true},
		{"no answer", store.ErrNoAnswer, fresh, true},
		{"no answer for too long", store.ErrNoAnswer, old, false},
		{"checksum", store.Failf(store.StatusChecksum, "x"), fresh, true},
		{"checksum wrong each time", store.Failf(store.StatusChecksum, "x"), tired, false},
		{"refused", store.Failf(store.StatusRefused, "x"), fresh, true},
		{"no space", store.Failf(store.StatusNoSpace, "x"), fresh, false},
		{"stale", store.Failf(store.StatusStale, "x"), fresh, false},
		{"anything else", errors.New("x"), fresh, false},
	} {
		if err := c.again(t.Context(), x.err, x.j); (err == nil) != x.want {
			t.Errorf("%s: again = %v, want %v", x.name, err, x.want)
		}
	}
	if c.times.retried != 5 || c.times.timedOut != 1 || c.times.corrupt != 1 {
		t.Errorf("counted %d retried, %d timed out, %d corrupt; want 5, 1, 1: busy is not counted", c.times.retried, c.times.timedOut, c.times.corrupt)
	}
}
