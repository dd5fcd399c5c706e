package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// asyncQueue holds asynchronous events for an owner who has asked once.
type asyncQueue struct {
	on bool
	ev []verbs.AsyncEvent
}

// raise adds an event.
func (d *Device) raise(ev verbs.AsyncEvent) {
	if d.async.on && !d.closed {
		d.async.ev = append(d.async.ev, ev)
		d.updateWake(len(d.dirty) > 0)
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
	d.updateWake(len(d.dirty) > 0)
	return n
}

// forget drops the events of a destroyed object.
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

// asyncOf is the event for a fault found in what the peer sent, ok if there is
// one: what has a completion to show for it has none.
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

// requests: messages that ask for memory here, which a queue pair may not serve.
func requests(op uint8) bool {
	return op == iwarp.OpWrite || op == iwarp.OpReadRequest || op == iwarp.OpAtomicRequest
}
