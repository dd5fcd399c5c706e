package rds

import (
	"errors"
	"testing"
	"time"
)

func TestWaitNames(t *testing.T) {
	for _, name := range []string{"", "auto", "block", "yield", "spin"} {
		if s, err := (&Options{Wait: name}).strategy(); err != nil || name != "" && s.String() != name {
			t.Errorf("%q: %v, %v", name, s, err)
		}
	}
	if _, err := (&Options{Wait: "busy"}).strategy(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a way that there is not: %v", err)
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
