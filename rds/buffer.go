package rds

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
)

// Buffer is memory for RDMA that the process shares with the daemon. Operations move
// data between it and the network without a copy in the process.
type Buffer struct {
	c     *Client
	id    uint32
	mem   []byte     // what was asked for
	whole []byte     // as mapped
	mu    sync.Mutex // one Free at a time
	freed bool       // guarded by c.tx.mu
}

// Alloc makes a Buffer of size bytes, page aligned and zeroed. It is a call to the
// daemon: allocate once, use often. Errors: ENOMEM; EINVAL for a size below 1;
// ENOBUFS, the daemon's limits; ErrDaemonGone, ErrSession, ErrClosed.
func (c *Client) Alloc(size int) (*Buffer, error) {
	if size < 1 {
		return nil, opErr("alloc", netip.AddrPort{}, invalid("size %d", size))
	}
	b, err := c.alloc(size)
	return b, opErr("alloc", netip.AddrPort{}, err)
}

func (c *Client) alloc(size int) (*Buffer, error) {
	resp, fds, err := c.call(&ipc.Alloc{Size: uint64(size)})
	if err != nil {
		return nil, err
	}
	ok, is := resp.(*ipc.AllocOK)
	if !is || len(fds) != 1 || ok.Size < uint64(size) || ok.Size > 1<<40 {
		c.mem.closeFDs(fds)
		return nil, c.broken("answer %T with %d descriptors to Alloc of %d bytes", resp, len(fds), size)
	}
	mem, err := c.mem.open(fds[0], int(ok.Size), true)
	c.mem.closeFDs(fds)
	if err != nil {
		_, _, _ = c.call(&ipc.Free{Buffer: ok.Buffer})
		return nil, err
	}
	return &Buffer{c: c, id: ok.Buffer, mem: mem[:size:size], whole: mem}, nil
}

// Bytes returns the memory; nil after Free. While an operation or a remote peer uses
// a part of the memory, that part may change at any moment. After Free, or the
// client's Close, access to the memory through an older slice is a fault.
func (b *Buffer) Bytes() []byte {
	b.c.tx.mu.Lock()
	defer b.c.tx.mu.Unlock()
	if b.freed {
		return nil
	}
	return b.mem
}

// Len returns the size in bytes, 0 after Free.
func (b *Buffer) Len() int { return len(b.Bytes()) }

// Free unmaps the memory. It is a call to the daemon and takes effect behind all
// sends that returned before it.
//
// Errors: EBUSY while regions of the buffer are registered, operations use it, or
// messages sent From it are not acknowledged; the buffer is then unchanged.
// ErrClosed if it was freed before. A send that names the buffer while Free runs
// fails with ErrInvalid.
func (b *Buffer) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.setFreed(true) {
		return opErr("free", netip.AddrPort{}, ErrClosed)
	}
	if _, _, err := b.c.call(&ipc.Free{Buffer: b.id}); err != nil {
		if b.c.Err() == nil {
			b.setFreed(false) // refused: it stays what it was
		}
		return opErr("free", netip.AddrPort{}, err)
	}
	b.c.mem.close(b.whole)
	return nil
}

// FreeWait waits until nothing uses the buffer and frees it then: no region of it is
// registered, and no operation or message sent From it is left, not even one of a
// closed socket. From its start no new region, operation or message can name the
// buffer.
//
// If ctx ends first, the error is the context's, and the memory is unmapped when its
// last use has ended. Other errors: ErrClosed if it was freed before; ErrDaemonGone,
// ErrSession.
func (b *Buffer) FreeWait(ctx context.Context) error {
	b.mu.Lock() // not while a Free may find it busy
	first := b.setFreed(true)
	b.mu.Unlock()
	if !first {
		return opErr("free", netip.AddrPort{}, ErrClosed)
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := b.c.call(&ipc.Free{Buffer: b.id, Wait: 1})
		if err == nil {
			b.c.mem.close(b.whole)
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return opErr("free", netip.AddrPort{}, err)
	case <-ctx.Done():
		return opErr("free", netip.AddrPort{}, ctx.Err())
	}
}

// setFreed sets the state and reports whether that changed it.
func (b *Buffer) setFreed(freed bool) bool {
	b.c.tx.mu.Lock()
	defer b.c.tx.mu.Unlock()
	was := b.freed
	b.freed = freed
	return was != freed
}

// Access says what remote peers may do with a region.
type Access uint8

// Rights of a region, those of package abi. At least one of the first three is needed.
const (
	AllowRead   = Access(abi.RightRead)   // remote Read operations
	AllowWrite  = Access(abi.RightWrite)  // remote Write operations
	AllowAtomic = Access(abi.RightAtomic) // remote Atomic operations
	UseOnce     = Access(abi.UseOnce)     // the region ends with the first message that has operations on it; it can be granted to one host
	// PageOffset makes the cookie's upper half the offset of the first byte in its
	// page, as the kernel does. Without it that half is a number that nobody can
	// guess.
	PageOffset = Access(abi.PageOffset)

	allowAny = AllowRead | AllowWrite | AllowAtomic
)

// Region is a registered part of a Buffer. A peer can use it, by its Cookie, once it
// was granted to the peer: by Expose, or by a message that carries the Cookie.
type Region struct {
	s      *Socket
	id     uint32
	cookie Cookie
	once   bool // UseOnce: the daemon may have ended it already
}

// Register makes the n bytes at off of b a region of this socket. It is a call to
// the daemon. Errors: ErrInvalid for a range outside b, or without a right; ENOBUFS,
// the quota; ErrClosed, ErrDaemonGone, ErrSession.
//
// Source: RDS_GET_MR, net/rds/rdma.c rds_get_mr; with registration and the
// right of a peer to use it as two steps.
func (s *Socket) Register(b *Buffer, off, n int, a Access) (*Region, error) {
	r, err := s.register(b, off, n, a)
	return r, opErr("register", s.local, err)
}

func (s *Socket) register(b *Buffer, off, n int, a Access) (*Region, error) {
	switch {
	case s.closed.Load():
		return nil, ErrClosed
	case b == nil || b.c != s.c:
		return nil, invalid("not a buffer of this client")
	case a&^(allowAny|UseOnce|PageOffset) != 0 || a&allowAny == 0:
		return nil, invalid("access %#x", uint8(a))
	}
	size := b.Len()
	if size == 0 {
		return nil, ErrClosed
	}
	if off < 0 || n < 1 || off > size || n > size-off {
		return nil, invalid("%d bytes at %d of a buffer of %d", n, off, size)
	}
	resp, _, err := s.c.call(&ipc.Register{Sock: s.handle, Buffer: b.id, Off: uint64(off), Len: uint64(n), Access: abi.Rights(a)})
	if err != nil {
		return nil, s.overtaken(err)
	}
	ok, is := resp.(*ipc.RegisterOK)
	if !is {
		return nil, s.c.broken("answer %T to Register", resp)
	}
	r := &Region{s: s, id: ok.Region, cookie: Cookie(ok.Cookie), once: a&UseOnce != 0}
	s.c.regions.add(r)
	if s.closed.Load() {
		s.c.regions.take(r)
		return nil, ErrClosed // the daemon released it with the socket
	}
	return r, nil
}

// Cookie returns the cookie that names the region to initiators.
func (r *Region) Cookie() Cookie { return r.cookie }

// Expose grants the region to the socket at peer, or, with port 0, to every socket
// of that host. The grant reaches that host ahead of all messages that this region's
// socket, or another socket of its lane, sends there later. A message that carries
// the Cookie needs no Expose.
func (r *Region) Expose(ctx context.Context, peer netip.AddrPort) error {
	peer = normal(peer)
	if err := r.s.checkDest(peer); err != nil {
		return opErr("expose", peer, err)
	}
	if !r.s.c.regions.has(r) {
		return opErr("expose", peer, ErrClosed)
	}
	if err := r.s.fixLane(ctx, peer); err != nil {
		return opErr("expose", peer, err)
	}
	err := r.s.c.callContext(ctx, &ipc.Expose{Region: r.id, Addr: peer.Addr(), Port: peer.Port()})
	return opErr("expose", peer, r.s.overtaken(err))
}

// Release takes the region back from everybody. When it returns nil, nobody can
// touch the memory through the region any more: operations in progress have ended,
// and a peer that did not answer in time has been disconnected. If ctx ends first,
// the release goes on, and the memory must be treated as in use. A second Release
// returns ErrClosed. So does one after the socket's Close, which takes back all
// regions of the socket.
//
// Source: RDS_FREE_MR; between two rdsd REVOKE and REVOKED.
func (r *Region) Release(ctx context.Context) error {
	if !r.s.c.regions.take(r) {
		return opErr("release", r.s.local, ErrClosed)
	}
	err := r.s.c.callContext(ctx, &ipc.Release{Region: r.id})
	if r.once && errors.Is(err, syscall.EINVAL) {
		err = nil // used, and retired since
	}
	return opErr("release", r.s.local, r.s.overtaken(err))
}

// regions are the live regions of a client, by key.
type regions struct {
	mu   sync.Mutex
	live map[uint32]*Region
}

func (g *regions) add(r *Region) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live[uint32(r.cookie)] = r
}

// take removes r and reports whether it was live.
func (g *regions) take(r *Region) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.live[uint32(r.cookie)] == r
	if was {
		delete(g.live, uint32(r.cookie))
	}
	return was
}

// takeAll removes the regions of a socket that is being closed.
func (g *regions) takeAll(s *Socket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, r := range g.live {
		if r.s == s {
			delete(g.live, k)
		}
	}
}

func (g *regions) has(r *Region) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[uint32(r.cookie)] == r
}

// knows reports whether the key of k is that of a live region. The offset in k is
// not checked.
func (g *regions) knows(k Cookie) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[uint32(k)] != nil
}
