package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestSummedLog(t *testing.T) {
	var out strings.Builder
	l := newSummedLog(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	written := func(text string) int {
		t.Helper()
		n := strings.Count(out.String(), text)
		out.Reset()
		return n
	}
	flood := func(about any, n int) {
		for i := range n {
			l.write(now, slog.LevelWarn, about, "wrong", "i", i)
		}
	}
	flood("a", lineBurst)
	if n := written("msg=wrong"); n != lineBurst {
		t.Errorf("%d lines, want each of %d", n, lineBurst)
	}
	if !l.tick(now) || out.Len() > 0 {
		t.Errorf("a sum of nothing: %s", out.String())
	}
	flood("a", 1000)
	flood("b", 1) // not held back by what a does
	if n := written("msg=wrong"); n != 1 {
		t.Errorf("%d lines, want that of b only", n)
	}
	if l.tick(now) {
		t.Error("nothing to sum")
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN msg=wrong i=999 times=1000") {
		t.Errorf("sum: %s", got)
	}
	out.Reset()
	// Quiet for long enough: as if nothing had been.
	now = now.Add(lineQuiet)
	l.tick(now)
	if len(l.seen) != 0 {
		t.Errorf("%d kept", len(l.seen))
	}
	flood("a", 1)
	if n := written("msg=wrong"); n != 1 {
		t.Errorf("%d lines after the quiet, want 1", n)
	}
}

// Everybody for whom there is no room shares one line.
func TestSummedLogBounded(t *testing.T) {
	var out strings.Builder
	l := newSummedLog(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	for i := range 4 * maxLines {
		l.write(now, slog.LevelInfo, i, "wrong")
	}
	if n := strings.Count(out.String(), "\n"); n != maxLines+lineBurst {
		t.Errorf("%d lines, want %d", n, maxLines+lineBurst)
	}
	if n := len(l.seen); n != maxLines+1 {
		t.Errorf("%d kept, want %d", n, maxLines+1)
	}
}
