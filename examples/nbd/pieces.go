package main

import (
	"context"
	"errors"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// suspectLimit is how often a piece is asked for when the answers say that
// something is wrong with it (refused, wrong checksum).
const suspectLimit = 3

// ended is the error of a session that is over.
type ended struct{ why error }

func (e *ended) Error() string { return "session over: " + e.why.Error() }
func (e *ended) Unwrap() error { return e.why }

// begin carries out m, again and again if need be, and calls done once: with the data
// of a READ without a slot, which is done's while it runs. After success done is
// mostly called by the goroutine that receives, and must not wait; begin may.
func (s *session) begin(slot *store.Slot, m store.Message, done func(data []byte, err error)) {
	again := func(err error) {
		go func() {
			done(s.persist(slot, m, err))
			s.flush()
		}()
	}
	if err := s.enter(); err != nil {
		again(err)
		return
	}
	s.Begin(s.ctx, slot, m, func(a store.Message, err error) {
		<-s.hand
		if err = check(m, a, err); err != nil {
			again(err)
			return
		}
		done(a.Data, nil)
	})
}

// ask carries out a request without data.
func (s *session) ask(m store.Message) error {
	err := s.once(nil, &m)
	if err != nil {
		_, err = s.persist(nil, m, err)
	}
	return err
}

// enter waits until the server takes one more request.
func (s *session) enter() error {
	select {
	case s.hand <- struct{}{}:
		return nil
	case <-s.ctx.Done():
		return &ended{context.Cause(s.ctx)}
	}
}

// once sends m and waits for the answer. It sets Data of a READ without a slot.
func (s *session) once(slot *store.Slot, m *store.Message) error {
	if err := s.enter(); err != nil {
		return err
	}
	a, err := s.Do(s.ctx, slot, *m)
	<-s.hand
	if m.Kind == store.KindRead {
		m.Data = a.Data
	}
	return check(*m, a, err)
}

// check returns err, or what is wrong with the answer a to m.
func check(m, a store.Message, err error) error {
	if err == nil && m.Kind != store.KindRead && a.Kind != store.KindDurable && a.Kind != store.KindWritten {
		return store.Failf(store.StatusChecksum, "%v answered with %v", m.Kind, a.Kind)
	}
	return err
}

// persist does again what failed with err, until it is done or hopeless. For
// want of an answer only what changes nothing is done again: a write that is
// late must not come after the next one to the same place. A session that is
// over keeps it out.
func (s *session) persist(slot *store.Slot, m store.Message, err error) (data []byte, _ error) {
	harmless := m.Kind == store.KindRead || m.Kind == store.KindFlush
	start := time.Now()
	for suspect := 1; err != nil; err = s.once(slot, &m) {
		var f *store.Failure
		switch failed := errors.As(err, &f); {
		case s.ctx.Err() != nil:
			return nil, &ended{context.Cause(s.ctx)}
		case failed && f.Status == store.StatusStale, !failed && !(errors.Is(err, store.ErrNoAnswer) && harmless):
			return nil, s.over(err)
		case time.Since(start) > s.Wait.GiveUp:
			return nil, s.over(err)
		case failed && f.Status == store.StatusBusy:
			if store.Pause(s.ctx) != nil {
				return nil, &ended{context.Cause(s.ctx)}
			}
			continue // the server did nothing: the slot stays as it is
		case failed && f.Status.Suspect():
			suspect++
		}
		if slot != nil {
			if err := slot.Recall(s.ctx); err != nil {
				return nil, s.over(err)
			}
		}
		if f != nil && !f.Status.Transient() && (!f.Status.Suspect() || suspect > suspectLimit) {
			return nil, f
		}
	}
	return m.Data, nil
}

// over ends the session because of why, and returns the session's error.
func (s *session) over(why error) error {
	s.end(why)
	return &ended{context.Cause(s.ctx)}
}

// errnoOf returns the error number for the client.
func errnoOf(err error) errno {
	var f *store.Failure
	if err == nil {
		return eOK
	}
	if errors.As(err, &f) {
		switch f.Status {
		case store.StatusNoSpace:
			return eNoSpace
		case store.StatusReadOnly:
			return ePerm
		case store.StatusSlow:
			return eNotSup
		case store.StatusBad, store.StatusRange:
			return eInval
		}
	}
	return eIO
}
