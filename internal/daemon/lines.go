package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	lineBurst = 50          // lines of one kind about one peer or user written one by one
	lineQuiet = time.Minute // without any, and the next ones are again
	maxLines  = 1024        // kinds told apart by whom they are about
)

// lines writes what peers and clients do wrong to the log. Those who do it in a
// loop do not fill it: more than lineBurst lines of one kind about one of them
// are summed, a line a tick. Safe for any goroutine.
type lines struct {
	log     *slog.Logger
	journal journal

	mu   sync.Mutex
	seen map[lineKey]*line // guarded by mu
}

type lineKey struct {
	msg   string
	about any // who: comparable; nil: everybody for whom there was no room
}

type line struct {
	level   slog.Level
	written int
	more    int   // not written
	args    []any // of the last one
	last    time.Time
}

func newLines(log *slog.Logger) *lines { return &lines{log: log, seen: map[lineKey]*line{}} }

// write logs msg with args, about a peer or user, now or in the next sum.
func (l *lines) write(now time.Time, level slog.Level, about any, msg string, args ...any) {
	l.journal.note(now, level, about, msg, args)
	l.mu.Lock()
	k := lineKey{msg, about}
	if l.seen[k] == nil && len(l.seen) >= maxLines {
		k.about = nil
	}
	n := l.seen[k]
	if n == nil {
		n = &line{level: level}
		l.seen[k] = n
	}
	n.last = now
	held := n.written >= lineBurst
	if held {
		n.more++
		n.args = args
	} else {
		n.written++
	}
	l.mu.Unlock()
	if !held {
		l.log.Log(context.Background(), level, msg, args...)
	}
}

// tick writes the sums and forgets whom nothing was to be said of for a while. It
// reports whether there was nothing to sum.
func (l *lines) tick(now time.Time) (idle bool) {
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
