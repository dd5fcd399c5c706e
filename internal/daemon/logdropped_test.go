package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/logqueue"
	"github.com/rdsd/rdsd/internal/stats"
)

// blocked is a log that nobody reads until it is closed.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) { <-b; return len(p), nil }

// TestLogDropped: the status warns of lines of the log that were dropped. They are counted, across
// a planned restart too.
func TestLogDropped(t *testing.T) {
	d := (&parted{t: t, d: startDaemon(t, nil)}).next()
	out := make(blocked)
	defer close(out)
	d.lines = logqueue.New(out)
	line := make([]byte, 1<<16)
	for d.lines.Dropped() < 3 {
		_, _ = d.lines.Write(line)
	}
	runDaemon(t, d)
	s, err := (backend{d: d}).Status()
	if err != nil || !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, "log: ") && strings.Contains(w, "were dropped") }) {
		t.Errorf("%q, %v", s.Warnings, err)
	}
	next, handed, taken := succeed(t, d, nil)
	if handed != nil || taken != nil {
		t.Fatal(handed, taken)
	}
	eventually(t, "the lines are counted", func() error {
		if n := next.statistics.Snapshot().Values[stats.LogDropped].Value; n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}
