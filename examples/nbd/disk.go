package main

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// attachPatience limits how long opening a session may take.
const attachPatience = 5 * time.Second

// diskOptions are what disks have in common.
type diskOptions struct {
	daemon string // control socket
	wait   store.Patience
	block  int // bytes of a piece, at most
	small  int // bytes of a piece that travels in a message, at most
	log    *slog.Logger
}

// disk is an NBD export: one blockstore. A client that needs it begins a session there, and
// all clients share the session. It is safe for concurrent use.
type disk struct {
	diskOptions
	name         string
	bind, server netip.AddrPort

	mu  sync.Mutex // guards cur; held while a session is opened
	cur *session
}

// use returns the current session, or a new one if that is over. The caller must call leave.
func (d *disk) use(ctx context.Context) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil && d.cur.ctx.Err() == nil {
		d.cur.join()
		return d.cur, nil
	}
	if d.cur != nil {
		d.cur.leave()
		d.cur = nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	s, err := openSession(ctx, d)
	if err != nil {
		return nil, err
	}
	s.join() // the disk's own
	s.join()
	d.cur = s
	d.log.Info("disk attached", "disk", d.server, "bytes", s.size, "read-only", s.readOnly, "block", s.Block)
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
