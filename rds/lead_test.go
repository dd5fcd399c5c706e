package rds

import (
	"runtime"
	"testing"
	"time"
)

// TestGive: who is about to sleep lets others run at first, and each time while
// there are some.
func TestGive(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, fresh := range map[string]func() *giver{
		"at first":      func() *giver { return &giver{} },
		"after a while": func() *giver { return &giver{last: time.Now().Add(-giveEvery)} },
		"busy":          func() *giver { return &giver{last: time.Now(), busy: true} },
	} {
		// Now and then the scheduler runs first who has just given way. It does
		// not do that three times in a row.
		ran := make(chan struct{}, 3)
		for range 3 {
			go func() { ran <- struct{}{} }()
			if fresh().give(); len(ran) > 0 {
				break
			}
		}
		if len(ran) == 0 {
			t.Errorf("%s: nobody else ran", name)
		}
	}
}

// TestSpinVain: waits that are longer than spinning reaches end the spinning,
// and a short one begins it again.
func TestSpinVain(t *testing.T) {
	s := newSpinner(time.Minute)
	for range maxVain {
		if !s.begin() {
			t.Fatal("no spinning")
		}
		s.since -= 2 * s.window
		s.slept()
	}
	if s.begin() {
		t.Error("spins though it was in vain")
	}
	s.slept() // at once
	if s.vain == maxVain || !s.begin() {
		t.Error("no spinning after a short wait")
	}
	s.met()
	if s.since != 0 {
		t.Error("the wait is not over")
	}
	if s = newSpinner(0); s.again() {
		t.Error("spins without a window")
	}
}
