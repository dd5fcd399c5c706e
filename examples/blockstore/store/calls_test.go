package store

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
	defer a.End()
	defer b.End()
	c.answer(Message{Kind: KindDurable, ID: b.id, More: []uint64{a.id, 12345}})
	for _, k := range []*Call{a, b} {
		if m, err := k.Wait(t.Context(), time.Hour); err != nil || m.Kind != KindDurable {
			t.Errorf("got %v, %v", m.Kind, err)
		}
	}
}

// TestCallsIgnoreLateAnswers: a late answer to a request that was repeated must not end the
// new call.
func TestCallsIgnoreLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		old := c.begin()
		if _, err := old.Wait(t.Context(), time.Second); !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("err = %v, want ErrNoAnswer", err)
		}
		old.End()
		again := c.begin()
		defer again.End()
		c.answer(Message{Kind: KindDone, ID: old.id})
		if _, err := again.Wait(t.Context(), time.Second); !errors.Is(err, ErrNoAnswer) {
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
	c.answer(Message{Kind: KindFailed, ID: k.id, Status: StatusNoSpace, Text: "block 3: no space"})
	var f *Failure
	if _, err := k.Wait(t.Context(), time.Hour); !errors.As(err, &f) || f.Status != StatusNoSpace || f.Error() != "block 3: no space" {
		t.Errorf("err = %v, want the server's failure", err)
	}
	c.retryAll("restart")
	if _, err := k.Wait(t.Context(), time.Hour); !errors.As(err, &f) || !f.Status.Transient() {
		t.Errorf("err = %v, want one that can be tried again", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	dead := errors.New("socket closed")
	c.fail(dead)
	if _, err := k.Wait(t.Context(), time.Hour); err != dead {
		t.Errorf("waiting call: err = %v, want %v", err, dead)
	}
	if _, err := c.begin().Wait(t.Context(), time.Hour); err != dead {
		t.Errorf("later call: err = %v, want %v", err, dead)
	}
}

func TestCallTakesNoMoreAnswersThanItHolds(t *testing.T) {
	c := newCalls()
	k := c.begin()
	defer k.End()
	for range 100 {
		c.answer(Message{Kind: KindDone, ID: k.id}) // must not block
	}
	if len(k.answers) != cap(k.answers) {
		t.Errorf("%d answers kept, want %d", len(k.answers), cap(k.answers))
	}
}
