package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// asyncQueue holds asynchronous events. It holds none before the first PollAsync.
type asyncQueue struct {
	on bool
	ev []verbs.AsyncEvent
}

// raise adds an event.
func (d *Device) raise(ev verbs.AsyncEvent) {
	if d.async.on && !d.closed {
		d.async.ev = append(d.async.ev, ev)
		d.updateWake(d.dirty.N > 0)
	}
}

// PollAsync implements verbs.Device.
func (d *Device) PollAsync(ev []verbs.AsyncEvent) int {
	if d.closed {
		return 0
	}
	a := &d.async
	a.on = true
	n := copy(ev, a.ev)
	rest := copy(a.ev, a.ev[n:])
	clear(a.ev[rest:])
	a.ev = a.ev[:rest]
	d.updateWake(d.dirty.N > 0)
	return n
}

// forget drops the events of an object that is being destroyed.
func (a *asyncQueue) forget(gone func(*verbs.AsyncEvent) bool) {
	keep := a.ev[:0]
	for i := range a.ev {
		if !gone(&a.ev[i]) {
			keep = append(keep, a.ev[i])
		}
	}
	clear(a.ev[len(keep):])
	a.ev = keep
}

// asyncOf returns the event for a fault in what the peer sent. ok is false if there
// is none, because a completion shows the fault.
func (f *fault) asyncOf() (t verbs.AsyncType, ok bool) {
	c := f.code
	switch {
	case f.overflow:
		return verbs.AsyncQPFatal, true
	case !f.term || f.rq != 0 || f.sq != 0 || c == iwarp.TermNoBuffer:
		return 0, false
	case c == iwarp.TermStream, c == iwarp.TermOpcode && f.quote.HasDDP && requests(f.quote.DDP.Op):
		return verbs.AsyncQPReqErr, true
	case c.Layer() == iwarp.LayerRDMAP && c.Type() == iwarp.TypeProtection, c == iwarp.TermInvalidate,
		c.Layer() == iwarp.LayerDDP && c.Type() == iwarp.TypeTagged && c != iwarp.TermTaggedVersion:
		return verbs.AsyncQPAccessErr, true
	}
	return verbs.AsyncQPFatal, true
}

// requests reports whether op asks for memory of this side, and so may be one that a
// QP does not serve.
func requests(op uint8) bool {
	return op == iwarp.OpWrite || op == iwarp.OpReadRequest || op == iwarp.OpAtomicRequest
}
