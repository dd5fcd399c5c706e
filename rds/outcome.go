package rds

import "github.com/rdsd/rdsd/internal/shm"

// Statuses of messages. A message without operations can ask for its own (Message.Notify). It
// holds a place in the completion queue as an operation does. The daemon names it by its message
// id, whose token is in awaited.

// ofMessage is the key of message id, which goes to a destination of ce.
func ofMessage(ce *cell, id uint32) opKey {
	return opKey{cell: ce.idx, id: uint64(id), msg: true}
}

// keyOf is the key of what e is the status of. base is that of its cell.
func keyOf(e *shm.EventStatus, base uint64) opKey {
	if e.OpID == 0 {
		return opKey{cell: e.Cell, id: e.Token, msg: true}
	}
	return opKey{cell: e.Cell, id: base + e.OpID}
}

// checkNotify checks that the status of m, which asks for it, can be told. mu is held.
func (t *tx) checkNotify(m *Message) error {
	switch {
	case m.Op != nil || m.Atomic != nil:
		return invalid("a message with operations has no status of its own: ask for that of an operation")
	case !t.tells:
		return errNoOutcome
	}
	return nil
}

// promiseOutcome reserves a place for the status of message id, which was just submitted. mu is held.
func (t *tx) promiseOutcome(s *Socket, ce *cell, id uint32, token uint64) {
	x := &t.msgs[id]
	x.notify = true
	t.c.wait.awaitReturn(t.c)
	x.settles++
	s.promised.Add(1)
	t.c.rx.promise(s, ofMessage(ce, id), ce, awaitedOp{token: token, notify: true, wanted: true})
}

// outcomeDue queues Unknown for the message with a key, which is back, if its status has not come.
// The daemon tells the status first. But a planned restart may have put an older daemon in its
// place, which does not know that the message has asked. tx.mu is held, mu is taken.
func (r *rx) outcomeDue(s *Socket, key opKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	if _, awaited := s.awaited[key]; awaited {
		r.complete(s, key, Completion{Status: Unknown})
	}
}
