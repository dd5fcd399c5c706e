package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsMatchAnswers(t *testing.T) {
	c := newCalls()
	a, b := c.begin(), c.begin()
	defer a.end()
	defer b.end()
	c.answer(message{kind: kindDurable, id: b.id, more: []uint64{a.id, 12345}})
	for _, k := range []*call{a, b} {
		if m, err := k.wait(t.Context(), time.Hour); err != nil || m.kind != kindDurable {
			t.Errorf("got %v, %v", m.kind, err)
		}
	}
}

// A late answer to a request that was made anew must not end the new one.
func TestCallsIgnoreLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		old := c.begin()
		if _, err := old.wait(t.Context(), time.Second); !errors.Is(err, errNoAnswer) {
			t.Fatalf("err = %v, want errNoAnswer", err)
		}
		old.end()
		again := c.begin()
		defer again.end()
		c.answer(message{kind: kindDone, id: old.id})
		if _, err := again.wait(t.Context(), time.Second); !errors.Is(err, errNoAnswer) {
			t.Errorf("err = %v: the late answer ended the new request", err)
		}
		if len(c.waiting) != 1 {
			t.Errorf("%d calls wait, want 1", len(c.waiting))
		}
	})
}

func TestCallFailures(t *testing.T) {
	c := newCalls()
	k := c.begin()
	c.answer(message{kind: kindFailed, id: k.id, status: statusNoSpace, text: "block 3: no space"})
	var f *failure
	if _, err := k.wait(t.Context(), time.Hour); !errors.As(err, &f) || f.status != statusNoSpace || f.Error() != "block 3: no space" {
		t.Errorf("err = %v, want the server's failure", err)
	}
	c.retryAll("restart")
	if _, err := k.wait(t.Context(), time.Hour); !errors.As(err, &f) || !f.status.transient() {
		t.Errorf("err = %v, want one that can be tried again", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	dead := errors.New("socket closed")
	c.fail(dead)
	if _, err := k.wait(t.Context(), time.Hour); err != dead {
		t.Errorf("waiting call: err = %v, want %v", err, dead)
	}
	if _, err := c.begin().wait(t.Context(), time.Hour); err != dead {
		t.Errorf("later call: err = %v, want %v", err, dead)
	}
}

func TestCallTakesNoMoreAnswersThanItHolds(t *testing.T) {
	c := newCalls()
	k := c.begin()
	defer k.end()
	for range 100 {
		c.answer(message{kind: kindDone, id: k.id}) // must not block
	}
	if len(k.answers) != cap(k.answers) {
		t.Errorf("%d answers kept, want %d", len(k.answers), cap(k.answers))
	}
}

func TestAgain(t *testing.T) {
	c := &client{opt: copyOptions{giveUp: time.Minute}}
	now := time.Now()
	fresh, old := job{start: now, attempt: 1}, job{start: now.Add(-2 * time.Minute), attempt: 9}
	tired := job{start: now, attempt: retryLimit}
	for _, x := range []struct {
		name string
		err  error
		j    job
		want bool
	}{
		{"dropped", failf(statusRetry, "x"), fresh, true},
		{"dropped for too long", failf(statusRetry, "x"), old, false},
		{"busy", failf(statusBusy, "x"), tired, true},
		{"no answer", errNoAnswer, fresh, true},
		{"no answer for too long", errNoAnswer, old, false},
		{"checksum", failf(statusChecksum, "x"), fresh, true},
		{"checksum wrong each time", failf(statusChecksum, "x"), tired, false},
		{"refused", failf(statusRefused, "x"), fresh, true},
		{"no space", failf(statusNoSpace, "x"), fresh, false},
		{"stale", failf(statusStale, "x"), fresh, false},
		{"anything else", errors.New("x"), fresh, false},
	} {
		if err := c.again(t.Context(), x.err, x.j); (err == nil) != x.want {
			t.Errorf("%s: again = %v, want %v", x.name, err, x.want)
		}
	}
	if c.times.retried != 4 || c.times.timedOut != 1 || c.times.corrupt != 1 {
		t.Errorf("counted %d retried, %d timed out, %d corrupt; want 4, 1, 1: busy is not counted", c.times.retried, c.times.timedOut, c.times.corrupt)
	}
}
