package main

import (
	"context"
	"errors"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	// suspectLimit is how often a piece is requested when the answers say that something
	// is wrong with it (refused, wrong checksum).
	suspectLimit = 3
	// busyPause is the pause before a request to a busy server is repeated.
	busyPause = time.Millisecond
)

// ended is the error of a session that is over.
type ended struct{ why error }

func (e *ended) Error() string { return "session over: " + e.why.Error() }
func (e *ended) Unwrap() error { return e.why }

// read reads m.Length bytes from the disk into the slot.
func (s *session) read(slot *store.Slot, m store.Message) error {
	return s.persist(slot, func() error { return s.Read(s.ctx, slot, m) }, true)
}

// write writes the slot's first m.Length bytes to the disk.
func (s *session) write(slot *store.Slot, m store.Message) error {
	return s.persist(slot, func() error {
		k, fetched, err := s.Write(s.ctx, slot, m)
		if err != nil {
			return err
		}
		defer k.End()
		if fetched { // the server has the data, but has not written it yet
			_, err = k.Wait(s.ctx, s.Client.Wait.Answer)
		}
		return err
	}, false)
}

// ask carries out a request without data.
func (s *session) ask(m store.Message) error {
	return s.persist(nil, func() error {
		a, err := s.Try(s.ctx, m)
		if err == nil && a.Kind != store.KindDurable && a.Kind != store.KindWritten {
			err = store.Failf(store.StatusChecksum, "%v answered with %v", m.Kind, a.Kind)
		}
		return err
	}, m.Kind == store.KindFlush)
}

// persist calls once until it succeeds, fails for good, or the session is over. A request
// with no answer is repeated only if it is harmless, that is if it changes nothing.
// Otherwise the session ends. If the request comes late, after the OPEN of the next
// session, the server refuses it. So it cannot overwrite a newer write to the same place.
func (s *session) persist(slot *store.Slot, once func() error, harmless bool) error {
	start := time.Now()
	for suspect := 1; ; {
		select {
		case s.hand <- struct{}{}:
		case <-s.ctx.Done():
			return &ended{context.Cause(s.ctx)}
		}
		err := once()
		<-s.hand
		var f *store.Failure
		switch failed := errors.As(err, &f); {
		case err == nil:
			return nil
		case s.ctx.Err() != nil:
			return &ended{context.Cause(s.ctx)}
		case failed && f.Status == store.StatusStale, !failed && !(errors.Is(err, store.ErrNoAnswer) && harmless):
			return s.over(err)
		case time.Since(start) > s.Wait.GiveUp:
			return s.over(err)
		case failed && f.Status == store.StatusBusy:
			if err := s.pause(); err != nil {
				return err
			}
			continue // the server did nothing: the slot stays as it is
		case failed && f.Status.Suspect():
			suspect++
		}
		if slot != nil {
			if err := slot.Recall(s.ctx); err != nil {
				return s.over(err)
			}
		}
		if f != nil && !f.Status.Transient() && (!f.Status.Suspect() || suspect > suspectLimit) {
			return f
		}
	}
}

// over ends the session because of why, and returns the session's error.
func (s *session) over(why error) error {
	s.end(why)
	return &ended{context.Cause(s.ctx)}
}

func (s *session) pause() error {
	t := time.NewTimer(busyPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return &ended{context.Cause(s.ctx)}
	}
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
