package engine

import (
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/ctl"
)

// traceRing is how many events of one trace may wait for their reader.
const traceRing = 1 << 13

// Trace is one trace.
type Trace struct {
	spec  ctl.TraceSpec
	uid   uint32 // whose sockets it may see
	admin bool   // ... all
	until int64  // Engine.now

	credit int64 // ns of the rate that are saved up
	looked int64

	ring     [traceRing]traceEvent
	w, r     atomic.Uint64 // written by the engine, read by the reader
	messages atomic.Uint64
	dropped  atomic.Uint64
	skipped  atomic.Uint64
}

// NewTrace makes a trace of what who may see. It is not on yet. Not for the engine's
// goroutine: it allocates.
func NewTrace(spec ctl.TraceSpec, who ctl.Caller) *Trace {
	return &Trace{spec: spec, uid: who.UID, admin: who.Admin}
}

// put is for the engine.
func (t *Trace) put(ev *traceEvent) {
	w := t.w.Load()
	if w-t.r.Load() == traceRing {
		t.dropped.Add(1)
		return
	}
	t.ring[w%traceRing] = *ev
	t.w.Store(w + 1)
}

// Read takes at most most events. One goroutine may call it.
func (t *Trace) Read(most int) (out []ctl.TraceEvent) {
	r := t.r.Load()
	n := min(t.w.Load()-r, uint64(most))
	for i := range n {
		ev := &t.ring[(r+i)%traceRing]
		out = append(out, ctl.TraceEvent{Time: ev.at.Time().UTC(), Step: traceNames[ev.step], Local: ev.local.Addr(), LocalPort: ev.local.Port(),
			Remote: ev.remote.Addr(), RemotePort: ev.remote.Port(), Lane: ev.lane, Seq: ev.seq, Datagrams: uint64(ev.datagrams),
			Bytes: uint64(ev.bytes), Ops: int(ev.ops), Outcome: ev.outcome})
	}
	t.r.Store(r + n)
	return out
}

// State says how far t is.
func (t *Trace) State() ctl.TraceState {
	n := t.messages.Load()
	return ctl.TraceState{Messages: n, Dropped: t.dropped.Load(), Skipped: t.skipped.Load(), Full: t.spec.Count != 0 && n >= t.spec.Count}
}
