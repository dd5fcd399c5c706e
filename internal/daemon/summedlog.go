package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	lineBurst = 50          // lines of one kind about one peer or user that are written one by one
	lineQuiet = time.Minute // after so long without such a line, the next ones are written one by one again
	maxLines  = 1024        // kinds of lines that are counted for each peer or user
)

// summedLog writes what peers and clients do wrong to the log. A peer or client that does
// it in a loop does not fill the log: after lineBurst lines of one kind about it, tick
// writes one line for all that follow. Safe for any goroutine.
type summedLog struct {
	log     *slog.Logger
	journal journal

	mu   sync.Mutex
	seen map[lineKey]*lineCount // guarded by mu
}

type lineKey struct {
	msg   string
	about any // the peer or user, comparable; nil: all that maxLines leaves no room for
}

// lineCount counts the lines of one kind about one peer or user.
type lineCount struct {
	level   slog.Level
	written int
	more    int   // not written
	args    []any // of the last line
	last    time.Time
}

func newSummedLog(log *slog.Logger) *summedLog {
	return &summedLog{log: log, seen: map[lineKey]*lineCount{}}
}

// write logs msg with args, about a peer (netip.Addr) or user (uint32), now or in the
// next sum.
func (l *summedLog) write(now time.Time, level slog.Level, about any, msg string, args ...any) {
	l.journal.note(now, level, about, msg, args)
	l.mu.Lock()
	k := lineKey{msg, about}
	if l.seen[k] == nil && len(l.seen) >= maxLines {
		k.about = nil
	}
	n := l.seen[k]
	if n == nil {
		n = &lineCount{level: level}
		l.seen[k] = n
	}
	n.last = now
	summed := n.written >= lineBurst
	if summed {
		n.more++
		n.args = args
	} else {
		n.written++
	}
	l.mu.Unlock()
	if !summed {
		l.log.Log(context.Background(), level, msg, args...)
	}
}

// tick writes the sums and drops the counts that have not changed for lineQuiet. It
// reports whether there was nothing to sum.
func (l *summedLog) tick(now time.Time) (idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle = true
	for k, n := range l.seen {
		if n.more > 0 {
			idle = false
			l.log.Log(context.Background(), n.level, k.msg, append(n.args, "times", n.more)...)
			n.more, n.args = 0, nil
		} else if now.Sub(n.last) >= lineQuiet {
			delete(l.seen, k)
		}
	}
	return idle
}
