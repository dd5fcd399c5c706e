package sim

import "github.com/rdsd/rdsd/rds"

// ofMessage is in the tokens of messages, whose number is the rest.
const ofMessage = 1 << 63

// asks reports whether message id asks for its status: one in four of those that have no
// operations, limit or cookie, whose notices the ledger counts.
func asks(id uint64, x *extra) bool {
	return id%4 == 3 && len(x.ops) == 0 && x.limit == 0 && x.cookie == 0
}

// outcome checks the status of a message: it has asked, it has no other, and it can be true.
func (e *endpoint) outcome(s rds.Completion) {
	w := e.w
	id := s.Token &^ ofMessage
	if id == 0 || id > uint64(len(w.msgs)) {
		broken("status", "of an unknown message %d", id)
	}
	m := w.msgs[id-1]
	w.log(e.h, "outcome", int64(id), int64(s.Status), int64(s.Errno))
	crashed := e.h.restarted(m.flow.dst.Addr(), m.met, m.at)
	switch {
	case !m.asks || m.flow.src != e || s.ID != 0 || s.To != m.flow.dst.Addr():
		broken("status", "%+v came to %v, message %d is of %v", s, e.ap, id, m.flow.src.ap)
	case m.fate != nil:
		broken("status", "message %d has two: %v and %v", id, m.fate.Status, s.Status)
	case m.delivered && m.n >= idLen && never(s.Status): // a shorter one may have been taken for another
		broken("status", "message %d was delivered and has %v", id, s.Status)
	case s.Status == rds.Canceled && !m.flow.cancelled:
		broken("status", "message %d is %v, and nobody cancelled it", id, s.Status)
	case m.forgotten && (s.Status == rds.Unknown || s.Status == rds.Dropped):
	case s.Status == rds.Unknown && !crashed:
		broken("status", "message %d is %v, and the host at %v did not restart", id, s.Status, s.To)
	case s.Status == rds.RemoteError, s.Status == rds.OtherError, s.Status == rds.Dropped && s.Errno == 0:
		broken("status", "message %d is %v", id, s.Err())
	}
	w.saw("message: " + s.Status.Error())
	m.fate = &s
}

// forgetAsked notes that a daemon has taken over at h that knows nothing of messages that ask.
func (w *world) forgetAsked(h *host) {
	for _, m := range w.msgs {
		m.forgotten = m.forgotten || m.asks && m.fate == nil && m.flow.src.h == h
	}
}

// checkOutcomes checks at the end that each message that has asked has its status, and that those
// with Success were delivered.
func (w *world) checkOutcomes() {
	for _, m := range w.msgs {
		e := m.flow.src
		if !m.asks || !e.open {
			continue
		}
		if m.fate == nil {
			broken("status", "message %d from %v to %v asked for one and has none", m.id, e.ap, m.flow.dst)
		}
		lasting := !w.unboundSince(m.flow.dst, m.at) && !e.h.restarted(m.flow.dst.Addr(), m.met, m.at)
		if m.fate.Status == rds.Success && lasting && !m.delivered && m.n >= idLen { // else the ledger may take another one for it
			broken("status", "message %d from %v to %v has %v and was not delivered", m.id, e.ap, m.flow.dst, m.fate.Status)
		}
	}
}
