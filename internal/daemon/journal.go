package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
)

const (
	maxEvents  = 4096 // the latest
	maxErrors  = 1024 // distinct errors; all others count as one
	maxErrText = 512  // bytes of an error that are kept
	errCut     = "..."

	maxEventText = 256 // bytes of an event's name that are kept
	maxLevelText = 16
)

// journal keeps what was logged, without the sums, for rdsctl events and rdsctl errors.
// Safe for any goroutine but the engine's, which must not wait for the lock.
type journal struct {
	mu     sync.Mutex
	seq    uint64                      // of the last event; guarded by mu
	before uint64                      // events up to this one are of daemons before this one, and were not handed over; guarded by mu
	ring   []ctl.EventInfo             // event seq is at seq % maxEvents; guarded by mu
	errors map[errorKey]*ctl.ErrorInfo // guarded by mu
}

type errorKey struct {
	event string
	about any // netip.Addr, uint32 or nil
}

// note takes in an event about a peer (netip.Addr) or a user (uint32). args
// are the log's. It keeps nothing that encode could not hand over.
func (j *journal) note(now time.Time, level slog.Level, about any, event string, args []any) {
	i := ctl.EventInfo{Time: now.UTC(), Level: strings.ToLower(level.String()), Event: cut(event, maxEventText)}
	switch x := about.(type) {
	case netip.Addr:
		i.Peer = x.WithZone("")
	case uint32:
		i.UID = &x
	}
	for k := 0; k+1 < len(args); k += 2 {
		switch v := args[k+1]; args[k] {
		case "err":
			if i.Error = fmt.Sprint(v); len(i.Error) > maxErrText {
				i.Error = cut(i.Error, maxErrText) + errCut
			}
		case "local":
			l, _ := v.(netip.Addr)
			i.Local = l.WithZone("")
		case "lane":
			if l, ok := v.(ctl.LanePath); ok {
				i.Lane, i.Path = &l.Lane, l.Path
			}
		case "pid":
			switch pid := v.(type) {
			case int:
				i.PID = max(0, pid)
			case int32:
				i.PID = max(0, int(pid))
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	i.Seq = j.seq
	if j.ring == nil {
		j.ring = make([]ctl.EventInfo, maxEvents)
	}
	j.ring[i.Seq%maxEvents] = i
	if i.Error != "" || level > slog.LevelInfo {
		j.count(&i)
	}
}

// follows has events counted on from the last one of the daemon before, so that a process that
// has read that one gets all that follow. Nothing has been noted yet. What is known of the events
// before is adopt's.
func (j *journal) follows(last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq, j.before = last, last
}

// count adds i to the distinct errors. Guarded by mu.
func (j *journal) count(i *ctl.EventInfo) {
	k := keyOf(i.Event, i.Peer, i.UID)
	e := j.errors[k]
	if e == nil && len(j.errors) >= maxErrors {
		k = errorKey{event: "other errors"}
		e = j.errors[k]
	}
	if e == nil {
		if j.errors == nil {
			j.errors = map[errorKey]*ctl.ErrorInfo{}
		}
		e = &ctl.ErrorInfo{Event: k.event, First: i.Time}
		if k.event == i.Event {
			e.Peer, e.UID = i.Peer, i.UID
		}
		j.errors[k] = e
	}
	e.Count++
	e.Last, e.Level, e.Error = i.Time, i.Level, i.Error
}

// first is the number of the first event that is kept. Guarded by mu.
func (j *journal) first() uint64 { return max(j.before, j.seq-min(j.seq, maxEvents)) + 1 }

// visible reports whether the caller of v may see what is about user uid; nil: about no
// user.
func visible(v ctl.View, uid *uint32) bool { return uid == nil || v.May(*uid) }

// events returns the events after the one numbered after, or the latest if after is 0.
// more says that there are more than v.Limit.
func (j *journal) events(v ctl.View, after uint64) (out []ctl.EventInfo, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := j.first()
	if after == 0 { // the latest, if not all
		for s := j.seq; s >= first && len(out) < v.Limit; s-- {
			if i := j.ring[s%maxEvents]; visible(v, i.UID) {
				out = append(out, i)
			}
		}
		slices.Reverse(out)
		return out, false
	}
	for s := max(first, after+1); s <= j.seq && s > after; s++ {
		if i := j.ring[s%maxEvents]; visible(v, i.UID) {
			if len(out) >= v.Limit {
				return out, true
			}
			out = append(out, i)
		}
	}
	return out, false
}

// distinct returns the distinct errors, the latest first. more says that there are more
// than v.Limit.
func (j *journal) distinct(v ctl.View) (out []ctl.ErrorInfo, more bool) {
	j.mu.Lock()
	for _, e := range j.errors {
		if visible(v, e.UID) {
			out = append(out, *e)
		}
	}
	j.mu.Unlock()
	lists.Sort(out, func(a, b ctl.ErrorInfo) int {
		return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Event, b.Event), a.Peer.Compare(b.Peer))
	})
	if len(out) > v.Limit {
		return out[:v.Limit], true
	}
	return out, false
}
