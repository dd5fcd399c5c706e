package store

import (
	"errors"
	"testing"
	"time"
)

// heard is what the dones of some calls got.
type heard struct {
	t  *testing.T
	c  *calls
	of map[uint64][]outcome
}

func newHeard(t *testing.T) *heard {
	return &heard{t: t, c: newCalls(), of: map[uint64][]outcome{}}
}

func (h *heard) begin(sending bool, back func()) *call {
	h.t.Helper()
	var k *call
	k, err := h.c.begin(time.Hour, sending, back, func(m Message, err error) { h.of[k.id] = append(h.of[k.id], outcome{m, err}) })
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// one returns what k got, once.
func (h *heard) one(k *call) outcome {
	h.t.Helper()
	if len(h.of[k.id]) != 1 {
		h.t.Fatalf("done was called %d times", len(h.of[k.id]))
	}
	return h.of[k.id][0]
}

func TestCallsMatchAnswers(t *testing.T) {
	h := newHeard(t)
	a, b := h.begin(false, nil), h.begin(false, nil)
	m := Message{Kind: KindDurable, ID: b.id, More: []uint64{a.id, 12345}}
	h.c.answer(m)
	h.c.answer(m) // late
	for _, k := range []*call{a, b} {
		if o := h.one(k); o.err != nil || o.m.Kind != KindDurable {
			t.Errorf("got %v, %v", o.m.Kind, o.err)
		}
	}
	if len(h.c.waiting) != 0 {
		t.Errorf("%d calls wait", len(h.c.waiting))
	}
}

// TestCallWithoutAnswer: a call whose time is over gets ErrNoAnswer. The late answer
// calls back, not done.
func TestCallWithoutAnswer(t *testing.T) {
	h := newHeard(t)
	backs := 0
	plain, lends, young := h.begin(false, nil), h.begin(false, func() { backs++ }), h.begin(false, nil)
	young.until = young.until.Add(time.Hour)
	h.c.expire(time.Now().Add(90 * time.Minute))
	for _, k := range []*call{plain, lends} {
		if o := h.one(k); !errors.Is(o.err, ErrNoAnswer) {
			t.Errorf("err = %v, want ErrNoAnswer", o.err)
		}
	}
	if len(h.of[young.id]) != 0 || backs != 0 || len(h.c.waiting) != 2 {
		t.Errorf("%d answers to the young call, %d calls of back, %d calls wait; want 0, 0, 2", len(h.of[young.id]), backs, len(h.c.waiting))
	}
	for range 2 {
		for _, k := range []*call{plain, lends} {
			h.c.answer(Message{Kind: KindDone, ID: k.id})
			h.one(k)
		}
	}
	if backs != 1 {
		t.Errorf("back was called %d times, want 1", backs)
	}
}

// TestCallAnsweredWhileSent: done waits for sent, whatever comes first.
func TestCallAnsweredWhileSent(t *testing.T) {
	for name, early := range map[string]func(*heard, *call){
		"answered":            func(h *heard, k *call) { h.c.answer(Message{Kind: KindWritten, ID: k.id}) },
		"expired":             func(h *heard, _ *call) { h.c.expire(time.Now().Add(2 * time.Hour)) },
		"answered after that": func(h *heard, _ *call) {},
	} {
		h := newHeard(t)
		backs := 0
		k := h.begin(true, func() { backs++ })
		early(h, k)
		if len(h.of[k.id]) != 0 {
			t.Errorf("%s: done was called before sent", name)
		}
		h.c.sent(k)
		h.c.answer(Message{Kind: KindWritten, ID: k.id})
		h.one(k)
		if backs != 1 {
			t.Errorf("%s: back was called %d times", name, backs)
		}
	}
}

func TestCallFailures(t *testing.T) {
	h := newHeard(t)
	k := h.begin(false, nil)
	h.c.answer(Message{Kind: KindFailed, ID: k.id, Status: StatusNoSpace, Text: "block 3: no space"})
	var f *Failure
	if o := h.one(k); !errors.As(o.err, &f) || f.Status != StatusNoSpace || f.Error() != "block 3: no space" {
		t.Errorf("err = %v, want the server's failure", o.err)
	}
	k = h.begin(false, nil)
	h.c.unknownAll("restart")
	if o := h.one(k); !errors.Is(o.err, ErrNoAnswer) {
		t.Errorf("err = %v, want ErrNoAnswer", o.err)
	}
	k = h.begin(false, nil)
	if !h.c.leave(k) || h.c.leave(k) {
		t.Error("leave: want true once")
	}
	k = h.begin(false, nil)
	dead := errors.New("socket closed")
	h.c.fail(dead)
	if o := h.one(k); o.err != dead {
		t.Errorf("waiting call: err = %v, want %v", o.err, dead)
	}
	if _, err := h.c.begin(time.Hour, false, nil, nil); err != dead {
		t.Errorf("later call: err = %v, want %v", err, dead)
	}
}
