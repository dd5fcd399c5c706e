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
	for name, g := range map[string]*giver{
		"at first":      {},
		"after a while": {last: time.Now().Add(-giveEvery)},
		"busy":          {last: time.Now(), busy: true},
	} {
		ran := make(chan struct{}, 1)
		go func() { ran <- struct{}{} }()
		if g.give(); len(ran) == 0 {
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
