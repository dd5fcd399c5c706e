package rds

import (
	"testing"
	"time"
)

func TestWaitText(t *testing.T) {
	for w, name := range map[Wait]string{WaitAuto: "auto", WaitBlock: "block", WaitYield: "yield", WaitSpin: "spin"} {
		text, err := w.MarshalText()
		if string(text) != name || err != nil {
			t.Errorf("%d: %q, %v", w, text, err)
		}
		got := Wait(9)
		if err := got.UnmarshalText(text); got != w || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	got := WaitYield
	if err := got.UnmarshalText([]byte("busy")); err == nil || got != WaitYield {
		t.Errorf("a way that there is not: %v, %v", got, err)
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct{ spin, suggested, want time.Duration }{
		{0, 50 * time.Microsecond, 50 * time.Microsecond},
		{0, 0, 0},
		{0, 1, 0},
		{time.Millisecond, 50 * time.Microsecond, time.Millisecond},
		{1, 50 * time.Microsecond, 0},
		{-1, 50 * time.Microsecond, 0},
	} {
		if got := (&Options{Spin: c.spin}).window(c.suggested); got != c.want {
			t.Errorf("Spin %v, the daemon's %v: %v, want %v", c.spin, c.suggested, got, c.want)
		}
	}
}
