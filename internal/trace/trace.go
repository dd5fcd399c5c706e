package trace

import (
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/ctl"
)

const (
	ring     = 1 << 13       // events of one trace that may wait for their reader
	burst    = 1             // seconds of the rate that may be chosen at once
	nsPerSec = 1_000_000_000 // of a rate
)

// Trace is one trace. Its engine's goroutine owns it, but for Read and State.
type Trace struct {
	spec  ctl.TraceSpec
	uid   uint32 // whose sockets it may see
	admin bool   // ... all
	until int64  // by the engine's clock

	credit int64 // ns of the rate that are saved up
	looked int64

	ring     [ring]Event
	w, r     atomic.Uint64 // written by the engine, read by the reader
	messages atomic.Uint64
	dropped  atomic.Uint64
	skipped  atomic.Uint64
}

// New makes a trace of what who may see. It is not on yet. Not for the engine's
// goroutine: it allocates.
func New(spec ctl.TraceSpec, who ctl.Caller) *Trace {
	return &Trace{spec: spec, uid: who.UID, admin: who.Admin}
}

// Read takes at most most events. One goroutine may call it.
func (t *Trace) Read(most int) (out []ctl.TraceEvent) {
	r := t.r.Load()
	n := min(t.w.Load()-r, uint64(most))
	for i := range n {
		out = append(out, t.ring[(r+i)%ring].told())
	}
	t.r.Store(r + n)
	return out
}

// State says how far t is.
func (t *Trace) State() ctl.TraceState {
	n := t.messages.Load()
	return ctl.TraceState{Messages: n, Dropped: t.dropped.Load(), Skipped: t.skipped.Load(), Full: t.spec.Count != 0 && n >= t.spec.Count}
}

func (t *Trace) put(ev *Event) {
	w := t.w.Load()
	if w-t.r.Load() == ring {
		t.dropped.Add(1)
		return
	}
	t.ring[w%ring] = *ev
	t.w.Store(w + 1)
}

// matches reports whether the trace may see ev and wants to.
func (t *Trace) matches(ev *Event, whose User) bool {
	s := &t.spec
	return (t.admin || whose.Known && whose.UID == t.uid) &&
		(!s.Local.IsValid() || s.Local == ev.Local.Addr()) && (s.LocalPort == 0 || s.LocalPort == ev.Local.Port()) &&
		(!s.Remote.IsValid() || s.Remote == ev.Remote.Addr()) && (s.RemotePort == 0 || s.RemotePort == ev.Remote.Port()) &&
		(s.Every <= 1 || ev.Seq%s.Every == 0)
}

// takes reports whether one more message is followed.
func (t *Trace) takes(now int64) bool {
	n := t.messages.Load()
	if now > t.until || t.spec.Count != 0 && n >= t.spec.Count {
		return false
	}
	each := int64(nsPerSec / t.spec.Rate)
	t.credit = min(t.credit+now-t.looked, burst*nsPerSec)
	t.looked = now
	if t.credit < each {
		t.skipped.Add(1)
		return false
	}
	t.credit -= each
	t.messages.Store(n + 1)
	return true
}
