package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// disk is the export of a blockstore, which is opened when a client needs it. It is safe
// for concurrent use.
type disk struct {
	daemon string // control socket
	bind   netip.AddrPort
	server netip.AddrPort
	wait   store.Patience
	block  int // bytes of a piece, at most
	small  int // bytes of a piece that travels in a message, at most
	log    *slog.Logger

	mu  sync.Mutex // guards cur; held while a session is made
	cur *session
}

// session is one session at the blockstore, shared by all connections. It ends when
// something happens after which writes that were not flushed may be lost, or when its last
// user leaves.
type session struct {
	*store.Client
	size     uint64
	readOnly bool

	ctx  context.Context // ends with the session
	end  context.CancelCauseFunc
	hand chan struct{} // one for each request the server has in hand; its capacity is the server's limit

	mu    sync.Mutex // guards the fields below
	users int
	free  []*store.Slot
	dirty []*conn // have replies to send
}

// use returns the current session, or a new one if that has ended. The caller must call
// leave.
func (d *disk) use(ctx context.Context) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil && d.cur.ctx.Err() == nil {
		d.cur.join()
		return d.cur, nil
	}
	s, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	if d.cur != nil {
		d.cur.leave()
	}
	s.join() // for the disk
	s.join() // for the caller
	d.cur = s
	d.log.Info("session at the blockstore", "server", d.server, "bytes", s.size, "read-only", s.readOnly, "block", s.Block)
	return s, nil
}

// begin opens the export for writing, or for reading if it is read-only.
func (d *disk) begin(ctx context.Context) (*session, error) {
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

// close ends the disk's own use of the session. Connections end theirs themselves.
func (d *disk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil {
		d.cur.leave()
		d.cur = nil
	}
}

func (s *session) join() {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
}

// leave ends one use of the session. The last one ends the session and closes its socket.
func (s *session) leave() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.end(errors.New("closed"))
		s.Client.Close()
	}
}

// flags returns NBD's transmission flags for the export.
func (s *session) flags() uint16 {
	if s.readOnly {
		return hasFlags | hasMulti | hasReadOnly
	}
	return hasFlags | hasMulti | hasFlush | hasFUA | hasTrim | hasZeroes | hasFastZero
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

// put gives back buffers that no operation can touch any more.
func (s *session) put(slots []*store.Slot) {
	s.mu.Lock()
	s.free = append(s.free, slots...)
	s.mu.Unlock()
}
