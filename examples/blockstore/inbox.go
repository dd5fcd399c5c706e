package main

import (
	"context"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

const (
	// idleGrant is after how long without a push the writer's buffers are taken back.
	idleGrant = 30 * time.Second
	// revokePatience is how long a writer's host has to give buffers back.
	revokePatience = 5 * time.Second
)

// inbox is the memory that the writer pushes blocks into: some buffers, granted
// together to one session. Safe for concurrent use.
//
// A grant has a number, and each WRITE names it. A WRITE under another number is not
// carried out: its buffer may be another's by now. A grant is given only when no
// WRITE under an earlier one is in hand, and its region was taken back.
type inbox struct {
	client *rds.Client
	sock   *rds.Socket
	block  int // bytes of a buffer
	count  int

	granting sync.Mutex // one grant or revocation at a time; guards buf and region
	buf      *rds.Buffer
	region   *rds.Region
	idle     *time.Timer

	mu      sync.Mutex // guards the fields below
	number  uint32     // of the grant, 16 bits
	session uint64     // whose it is, 0: there is none
	mem     []byte
	inHand  int
	used    time.Time
}

func newInbox(c *rds.Client, sock *rds.Socket, block, count int) *inbox {
	return &inbox{client: c, sock: sock, block: block, count: min(count, 1<<16)}
}

// begin finds the bytes of the pushed WRITE r. end ends its use of them.
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
	r.pushed = b.mem[i*b.block:][:r.Length:r.Length]
	return nil
}

// end says that the bytes of r are not used any more; r may be any request.
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

// grant makes the buffers session's and returns the answer to GRANT.
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
		b.region, err = b.sock.Register(b.buf, 0, b.buf.Len(), rds.AllowWrite)
	}
	if err != nil {
		return m, 0, store.Failf(store.StatusIO, "buffers to write into: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number = (b.number + 1) & 0xffff
	b.session, b.mem, b.used = session, b.buf.Bytes(), time.Now()
	if b.idle != nil {
		b.idle.Stop()
	}
	b.idle = time.AfterFunc(idleGrant, b.expire)
	return store.Message{Kind: store.KindGranted, Block: uint64(b.number), BlockSize: uint32(b.block), Window: uint32(b.count)},
		b.region.Cookie(), nil
}

// revoke ends the grant, if there is one: when it returns true nobody can write into
// the memory. False: a WRITE under it is in hand. b.granting is held.
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
		b.drop(true) // somebody may still write into it
	}
	b.region = nil
	return true
}

// drop gives the memory back when its last use has ended.
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

// expire takes the buffers back from a writer that has not used them for long.
func (b *inbox) expire() {
	b.granting.Lock()
	defer b.granting.Unlock()
	b.mu.Lock()
	left := idleGrant - time.Since(b.used)
	idle := b.inHand == 0 && left <= 0
	b.mu.Unlock()
	switch {
	case b.region == nil:
	case !idle:
		b.idle.Reset(max(left, time.Second))
	case b.revoke(context.Background()):
		b.drop(false)
	}
}

// close ends the grant.
func (b *inbox) close() {
	b.granting.Lock()
	defer b.granting.Unlock()
	if b.idle != nil {
		b.idle.Stop()
	}
	b.region = nil // ends with the socket
}
