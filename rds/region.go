package rds

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/ipc"
)

// Access says what remote peers may do with a region.
type Access uint8

// Rights of a region. At least one of the first three is needed.
const (
	AllowRead   = Access(abi.RightRead)   // peers may read
	AllowWrite  = Access(abi.RightWrite)  // peers may write
	AllowAtomic = Access(abi.RightAtomic) // peers may run atomic operations
	UseOnce     = Access(abi.UseOnce)     // the region ends with the first message that has operations on it; it can be granted to one host

	everybody = Access(abi.Open) // see krds.Open

	allowAny = AllowRead | AllowWrite | AllowAtomic
)

// Region is a registered part of a Buffer. A peer can use it, by its Cookie, once it
// was granted to the peer: by Expose, or by a message that carries the Cookie.
type Region struct {
	s      *Socket
	buf    *Buffer
	off, n uint64
	access Access
	once   bool // UseOnce: the daemon may have ended it already

	id      uint32 // changed with Client.life held
	cookie  Cookie // guarded by regions.mu
	exposed map[netip.AddrPort]struct{}
}

// Register makes the n bytes at offset off of b a region of this socket, with the rights a. It
// is a call to the daemon. Nobody can use the region before it is granted: see Region.
//
// Errors: ErrInvalid for a range outside b, or without a right; ENOBUFS, the quota;
// ErrClosed, ErrDaemonGone, ErrSession.
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
	case a&^(allowAny|UseOnce|everybody) != 0 || a&allowAny == 0:
		return nil, invalid("access %#x", uint8(a))
	}
	size := len(b.Bytes())
	if size == 0 {
		return nil, ErrClosed
	}
	if off < 0 || n < 1 || off > size || n > size-off {
		return nil, invalid("%d bytes at %d of a buffer of %d", n, off, size)
	}
	r := &Region{s: s, buf: b, off: uint64(off), n: uint64(n), access: a, once: a&UseOnce != 0}
	if err := s.atDaemon(context.Background(), r.register); err != nil {
		return nil, err
	}
	return r, nil
}

// register asks the daemon for a new region. It is called in an attempt.
func (r *Region) register() error {
	s := r.s
	if r.buf.Bytes() == nil {
		return ErrClosed // the daemon after the first one has not taken it
	}
	resp, _, err := s.c.call(&ipc.Register{Sock: s.handle, Buffer: r.buf.id, Off: r.off, Len: r.n, Access: abi.Rights(r.access)})
	if err != nil {
		return s.overtaken(err)
	}
	ok, is := resp.(*ipc.RegisterOK)
	if !is {
		return s.c.broken("answer %T to Register", resp)
	}
	r.id = ok.Region
	s.c.regions.add(r, Cookie(ok.Cookie))
	if s.closed.Load() {
		s.c.regions.take(r)
		return ErrClosed // the daemon released it with the socket
	}
	return nil
}

// Cookie returns the cookie that names the region to initiators. It changes when the
// client opens again (Options.Reopen).
func (r *Region) Cookie() Cookie {
	g := &r.s.c.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	return r.cookie
}

// Expose grants the region to the socket at peer, or, with port 0, to every socket
// of that host. The grant reaches that host ahead of all messages that this region's
// socket, or another socket of this client in its lane, sends there later. A message that carries
// the Cookie needs no Expose.
//
// The peer [::]:0 stands for everybody who shows the Cookie, on every host that this host's
// daemon allows as a peer, now or later. Then the Cookie is all that protects the region: 52 bits
// of it are random. Register memory anew now and then.
//
// It is a call to the daemon and does not wait for the peer: a NotGranted notice says that the
// peer has no room. Errors: the context's; ErrInvalid for an address that no host has; EBUSY
// for another host than the first, of a region for one use; EINVAL if that was used; EACCES for
// everybody, the daemon's keys.strict names the user; ENOBUFS, the quota; ErrClosed,
// ErrDaemonGone, ErrSession.
//
// Source: of everybody RDS_GET_MR, whose keys everybody may use.
func (r *Region) Expose(ctx context.Context, peer netip.AddrPort) error {
	peer = normal(peer)
	err := r.s.checkDest(peer)
	if peer == all || err == nil {
		err = r.exposeTo(ctx, peer)
	}
	return opErr("expose", peer, err)
}

// all is the peer that stands for everybody, see Expose.
var all = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)

func (r *Region) exposeTo(ctx context.Context, peer netip.AddrPort) error {
	return untilDone(ctx, func() error { return r.s.atDaemon(ctx, func() error { return r.expose(ctx, peer) }) })
}

// expose is called in an attempt.
func (r *Region) expose(ctx context.Context, peer netip.AddrPort) error {
	g := &r.s.c.regions
	if !g.has(r) {
		return ErrClosed
	}
	if peer != all {
		if err := r.s.fixLane(ctx, peer); err != nil {
			return err
		}
	}
	if _, _, err := r.s.c.call(&ipc.Expose{Region: r.id, Addr: peer.Addr(), Port: peer.Port()}); err != nil {
		return r.s.overtaken(err)
	}
	if r.s.c.opts.Reopen != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.exposed == nil {
			r.exposed = map[netip.AddrPort]struct{}{}
		}
		r.exposed[peer] = struct{}{}
	}
	return nil
}

// Release takes the region back from everybody. When it returns nil, nobody can
// touch the memory through the region any more: operations in progress have ended,
// and a peer that did not answer in time has been disconnected. If ctx ends first,
// the release goes on, and the memory must be treated as in use. A second Release
// returns ErrClosed. So does one after the socket's Close, which takes back all
// regions of the socket. Errors: the context's; ErrClosed, ErrSession. It returns nil if the
// daemon has gone, and its keys with it.
//
// Source: RDS_FREE_MR; between two rdsd REVOKE and REVOKED.
func (r *Region) Release(ctx context.Context) error {
	c := r.s.c
	c.life.RLock()
	live, id, epoch := c.regions.take(r), r.id, c.tx.now()
	c.life.RUnlock()
	if !live {
		return opErr("release", r.s.local, ErrClosed)
	}
	gone := func() error { return nil } // and its keys with the daemon
	err := untilDone(ctx, func() error {
		return c.atOnce(func() error {
			if c.tx.now() != epoch {
				return gone()
			}
			_, _, err := c.call(&ipc.Release{Region: id})
			return err
		}, gone)
	})
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

func (g *regions) add(r *Region, k Cookie) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.cookie = k
	g.live[uint32(r.cookie)] = r
}

// grantees returns the peers to which r was exposed.
func (r *Region) grantees() []netip.AddrPort {
	g := &r.s.c.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.exposed), netip.AddrPort.Compare)
}

// list returns the live regions.
func (g *regions) list() []*Region {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.live))
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
