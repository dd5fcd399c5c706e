package loadgen

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Whatever ends a course says why, and only the end of the time is no error. A line comes only
// once figures count.
func TestCourse(t *testing.T) {
	wrong := errors.New("wrong")
	closed := make(chan struct{})
	close(closed)
	for _, tc := range []struct {
		name string
		c    Course
		end  func(ctx, all context.CancelCauseFunc) // called at the first line
		want error
	}{
		{"time", Course{Duration: time.Millisecond}, nil, nil},
		{"interrupted", Course{Interval: time.Millisecond}, func(ctx, _ context.CancelCauseFunc) { ctx(nil) }, ErrInterrupted},
		{"failed", Course{Interval: time.Millisecond}, func(_, all context.CancelCauseFunc) { all(wrong) }, wrong},
		{"the peer", Course{Over: closed, WarmUp: time.Hour}, nil, ErrOver},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		all, fail := context.WithCancelCause(t.Context())
		begun, lines := 0, 0
		tc.c.Begin = func() { begun++ }
		tc.c.Line = func(time.Time) {
			if lines++; begun != 1 {
				t.Errorf("%s: line %d after %d beginnings", tc.name, lines, begun)
			}
			tc.end(stop, fail)
		}
		if err := tc.c.Run(ctx, all); err != tc.want || tc.end != nil && lines == 0 {
			t.Errorf("%s: %v after %d lines, want %v", tc.name, err, lines, tc.want)
		}
		stop(nil)
		fail(nil)
	}
}
