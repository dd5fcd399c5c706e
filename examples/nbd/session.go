package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// suspectLimit is how often a piece is requested when the answers say that something
// is wrong with it (refused, wrong checksum).
const suspectLimit = 3

// ended is the error of a session that is over.
type ended struct{ why error }

func (e *ended) Error() string { return "session over: " + e.why.Error() }
func (e *ended) Unwrap() error { return e.why }

// errClosed ends a session in an orderly way.
var errClosed = errors.New("closed")

// session is one session at a blockstore, shared by all connections. It ends when something
// happened after which writes that were not flushed may be lost, or when its last user leaves.
type session struct {
	*store.Client
	size     uint64
	readOnly bool

	ctx  context.Context // ends with the session
	end  context.CancelCauseFunc
	hand chan struct{} // one for each request the server has in hand; its capacity is the server's limit

	mu    sync.Mutex // guards the fields below
	free  []*store.Slot
	users int
	dirty []*conn // have replies to send
}

// openSession opens the export of d for writing, or for reading if it is read-only.
func openSession(ctx context.Context, d *disk) (*session, error) {
	s := &session{}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	c, err := store.Connect(s.ctx, store.Options{
		Daemon: rds.Options{Socket: d.daemon}, Bind: d.bind, Server: d.server, Wait: d.wait, Small: d.small, Idle: s.flush,
	})
	if err != nil {
		s.end(err)
		return nil, err
	}
	s.Client = c
	size, err := c.Open(ctx, d.block, true)
	var f *store.Failure
	if errors.As(err, &f) && f.Status == store.StatusReadOnly {
		s.readOnly = true
		size, err = c.Open(ctx, d.block, false)
	}
	if err != nil {
		s.end(err)
		c.Close()
		return nil, fmt.Errorf("blockstore %v: %w", d.server, err)
	}
	s.size = uint64(size)
	s.hand = make(chan struct{}, c.Limit)
	return s, nil
}

func (s *session) join() {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
}

// leave ends one use of the session. The last one closes the client, which unmaps the buffers.
func (s *session) leave() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.end(errClosed)
		s.Close()
	}
}

// flags returns NBD's transmission flags for the export.
func (s *session) flags() uint16 {
	if s.readOnly {
		return hasFlags | hasMulti | hasReadOnly
	}
	return hasFlags | hasMulti | hasFlush | hasFUA | hasTrim | hasZeroes | hasFastZero
}

// touch notes that c has replies to send, for the next flush.
func (s *session) touch(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.dirty, c) {
		s.dirty = append(s.dirty, c)
	}
}

// flush sends the replies of all connections that have some.
func (s *session) flush() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = nil
	s.mu.Unlock()
	for _, c := range dirty {
		c.out.flush()
	}
}

// take returns a buffer, and makes one if none is free. The connections bound how many they
// take.
func (s *session) take() (*store.Slot, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return slot, slot.Ready(s.ctx)
	}
	s.mu.Unlock()
	return s.Slot()
}

// put gives back a buffer that no operation can touch any more.
func (s *session) put(slot *store.Slot) {
	s.mu.Lock()
	s.free = append(s.free, slot)
	s.mu.Unlock()
}

// begin carries out m and calls done once. A READ without a slot passes its data to done,
// and they are valid only while done runs. After success the receiving goroutine mostly
// calls done, so done must not wait. begin may wait.
func (s *session) begin(slot *store.Slot, m store.Message, done func(data []byte, err error)) {
	again := func(err error) {
		go func() {
			a, err := s.persist(slot, m, err)
			done(a.Data, err)
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

// answer carries out a request without data and returns m with the extents of a MAP.
func (s *session) answer(m store.Message) (store.Message, error) {
	err := s.once(nil, &m)
	if err != nil {
		m, err = s.persist(nil, m, err)
	}
	return m, err
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

// once sends m once and waits for the answer. It sets m.Data for a READ without a slot, and
// m.Extents for a MAP.
func (s *session) once(slot *store.Slot, m *store.Message) error {
	if err := s.enter(); err != nil {
		return err
	}
	a, err := s.Do(s.ctx, slot, *m)
	<-s.hand
	if m.Kind == store.KindRead {
		m.Data = a.Data
	}
	m.Extents = a.Extents
	return check(*m, a, err)
}

// check returns err. If err is nil, it returns what is wrong with the answer a to m.
func check(m, a store.Message, err error) error {
	if err != nil || m.Kind == store.KindRead { // Begin has checked the answer to a READ
		return err
	}
	right := a.Kind == store.KindDurable || a.Kind == store.KindWritten
	if m.Kind == store.KindMap {
		left := uint64(m.Length)
		right = a.Kind == store.KindMapped && a.Block == m.Block && len(a.Extents) > 0
		for _, e := range a.Extents {
			right = right && e.Length > 0 && e.Length <= left
			left -= min(left, e.Length)
		}
	}
	if !right {
		return store.Failf(store.StatusChecksum, "%v answered with an unusable %v", m.Kind, a.Kind)
	}
	return nil
}

// persist repeats m, which has failed with err, until it succeeds, fails for good, or the
// session is over. A request with no answer is repeated only if it changes nothing.
// Otherwise the session ends. If the request comes late, after the OPEN of the next
// session, the server refuses it. So it cannot overwrite a newer write to the same place.
func (s *session) persist(slot *store.Slot, m store.Message, err error) (store.Message, error) {
	harmless := m.Kind == store.KindRead || m.Kind == store.KindFlush || m.Kind == store.KindMap
	start := time.Now()
	for suspect := 1; err != nil; err = s.once(slot, &m) {
		var f *store.Failure
		switch failed := errors.As(err, &f); {
		case s.ctx.Err() != nil:
			return m, &ended{context.Cause(s.ctx)}
		case failed && f.Status == store.StatusStale, !failed && !(errors.Is(err, store.ErrNoAnswer) && harmless):
			return m, s.over(err)
		case time.Since(start) > s.Wait.GiveUp:
			return m, s.over(err)
		case failed && f.Status == store.StatusBusy:
			if store.Pause(s.ctx) != nil {
				return m, &ended{context.Cause(s.ctx)}
			}
			continue // the server did nothing: the slot stays as it is
		case failed && f.Status.Suspect():
			suspect++
		}
		if slot != nil {
			if err := slot.Recall(s.ctx); err != nil {
				return m, s.over(err)
			}
		}
		if f != nil && !f.Status.Transient() && (!f.Status.Suspect() || suspect > suspectLimit) {
			return m, f
		}
	}
	return m, nil
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
