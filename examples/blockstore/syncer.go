package main

import (
	"net/netip"
	"sync"
)

// written is a block that was written but is not yet on stable storage.
type written struct {
	to      netip.AddrPort
	id      uint64 // request number
	block   uint64
	session uint64 // which wrote it
}

// maxPending bounds the requests that wait for an fsync. Requests that need no wait until then
// count for no client's quota.
const maxPending = 1 << 16

// syncer makes written blocks durable in groups. One fsync covers all blocks that were
// added since the fsync before it began. It is safe for concurrent use.
type syncer struct {
	sync    func() error
	confirm func(group []written, err error)

	mu      sync.Mutex // guards the fields below
	cond    sync.Cond
	pending []written
	closed  bool
	syncs   uint64
	ended   chan struct{}
}

func newSyncer(sync func() error, confirm func([]written, error)) *syncer {
	s := &syncer{sync: sync, confirm: confirm, ended: make(chan struct{})}
	s.cond.L = &s.mu
	go s.run()
	return s
}

// add queues a written block for the next group. It returns false if too many wait already.
func (s *syncer) add(w written) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= maxPending {
		return false
	}
	s.pending = append(s.pending, w)
	s.cond.Signal()
	return true
}

// count returns the number of fsyncs.
func (s *syncer) count() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

func (s *syncer) run() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		for len(s.pending) == 0 && !s.closed {
			s.cond.Wait()
		}
		group := s.pending
		s.pending = nil
		if len(group) == 0 {
			s.mu.Unlock()
			return
		}
		s.syncs++
		s.mu.Unlock()
		s.confirm(group, s.sync())
	}
}

// close syncs the last group, and returns when the group is confirmed.
func (s *syncer) close() {
	s.mu.Lock()
	s.closed = true
	s.cond.Signal()
	s.mu.Unlock()
	<-s.ended
}
