package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// revokePatience limits how long the release of a region may take.
const revokePatience = 5 * time.Second

// inbox is the memory that the writer pushes blocks into. It consists of buffers that are
// one region, which is granted to one session. It is safe for concurrent use.
//
// A grant has a number, and each pushed WRITE names it. A WRITE that names an earlier grant
// is refused, because its buffer may belong to another session. The inbox gives the next
// grant only when no WRITE of the earlier one is in hand and its region is released.
type inbox struct {
	client *rds.Client
	sock   *rds.Socket
	block  int // bytes of a buffer
	count  int
	keep   time.Duration // how long a writer keeps the buffers without a push
	log    *slog.Logger

	granting sync.Mutex // one grant or revocation at a time; guards buf and region
	buf      *rds.Buffer
	region   *rds.Region
	idle     *time.Timer

	mu      sync.Mutex // guards the fields below
	number  uint32     // the number of the grant, 16 bits
	session uint64     // the session that has the grant; 0 if there is no grant
	mem     []byte
	inHand  int
	used    time.Time
	pushed  bool          // under the grant
	grace   time.Duration // how long a grant lasts at least, see expire
}

const (
	// leastPause is the least pause between two looks whether the writer is idle.
	leastPause = time.Millisecond
	// mostGrace bounds inbox.grace.
	mostGrace = 30 * time.Second
)

func newInbox(c *rds.Client, sock *rds.Socket, block, count int, keep time.Duration, log *slog.Logger) *inbox {
	return &inbox{client: c, sock: sock, block: block, count: min(count, 1<<16), keep: keep, log: log}
}

// begin checks the pushed WRITE r and sets r.pushed. The caller must call end when it does
// not use those bytes any more.
func (b *inbox) begin(r *request) *store.Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	number, i := r.Window>>16, int(r.Window&0xffff)
	switch {
	case b.session == 0 || b.session != r.Session || number != b.number:
		return store.Failf(store.StatusGrantOver, "block %d: pushed under a grant that is over", r.Block)
	case i >= b.count:
		return store.Failf(store.StatusBad, "block %d: pushed into buffer %d of %d", r.Block, i, b.count)
	}
	b.inHand++
	b.pushed = true
	r.pushed = b.mem[i*b.block:][:r.Length:r.Length]
	return nil
}

// end ends the use of r.pushed. It does nothing for a request without pushed bytes.
func (b *inbox) end(r *request) {
	if r.pushed == nil {
		return
	}
	r.pushed = nil
	b.mu.Lock()
	b.inHand--
	b.used = time.Now()
	b.mu.Unlock()
}

// grant gives the buffers to session and returns the answer to GRANT and its cookie.
func (b *inbox) grant(ctx context.Context, session uint64) (m store.Message, cookie rds.Cookie, f *store.Failure) {
	b.granting.Lock()
	defer b.granting.Unlock()
	if !b.revoke(ctx) {
		return m, 0, store.Failf(store.StatusBusy, "an earlier grant is still in use")
	}
	var err error
	if b.buf == nil {
		b.buf, err = b.client.Alloc(b.block * b.count)
	}
	if err == nil {
		b.region, err = b.sock.Register(b.buf, 0, len(b.buf.Bytes()), rds.AllowWrite)
	}
	if err != nil {
		return m, 0, store.Failf(store.StatusIO, "buffers to write into: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number = (b.number + 1) & 0xffff
	b.session, b.mem, b.used, b.pushed = session, b.buf.Bytes(), time.Now(), false
	if b.idle != nil {
		b.idle.Stop()
	}
	b.idle = time.AfterFunc(max(b.keep, b.grace), b.expire)
	return store.Message{Kind: store.KindGranted, Block: uint64(b.number), BlockSize: uint32(b.block), Window: uint32(b.count)},
		b.region.Cookie(), nil
}

// revoke ends the grant, if there is one. When it returns true, no client can write into the
// memory. It returns false if a WRITE of the grant is in hand. b.granting is held.
func (b *inbox) revoke(ctx context.Context) bool {
	b.mu.Lock()
	b.session = 0
	busy := b.inHand > 0
	b.mu.Unlock()
	if busy {
		return false
	}
	if b.region == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, revokePatience)
	defer cancel()
	if err := b.region.Release(ctx); err != nil {
		b.drop(true) // the writer may still write into it
	}
	b.region = nil
	return true
}

// drop frees the memory. If used is true, the memory is freed when its last use has ended.
func (b *inbox) drop(used bool) {
	buf := b.buf
	b.buf = nil
	if buf == nil {
		return
	}
	if !used {
		_ = buf.Free()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = buf.FreeWait(ctx)
}

// expire takes the buffers back from a writer that has not used them for long. If the writer
// has not used them at all, keep may be shorter than a push takes to arrive: then the next
// grant lasts longer, so that pushes arrive in the end.
func (b *inbox) expire() {
	b.granting.Lock()
	defer b.granting.Unlock()
	b.mu.Lock()
	keep := max(b.keep, b.grace)
	left := keep - time.Since(b.used)
	idle := b.inHand == 0 && left <= 0
	if idle && !b.pushed {
		b.grace = min(max(2*keep, leastPause), mostGrace)
	}
	b.mu.Unlock()
	switch {
	case b.region == nil:
	case !idle:
		b.idle.Reset(max(left, keep/8, leastPause))
	case b.revoke(context.Background()):
		b.drop(false)
		b.log.Info("buffers taken back from an idle writer")
	}
}

// close ends the grant.
func (b *inbox) close() {
	b.granting.Lock()
	defer b.granting.Unlock()
	if b.idle != nil {
		b.idle.Stop()
	}
	b.region = nil // the socket's end releases it
}
