package sim

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

// region is registered memory. Its lower half is for reads and never changes. Its upper
// half is written, each byte by at most one operation.
type region struct {
	w       *world
	id      int
	e       *endpoint
	r       *rds.Region
	life    int // of the host
	mem     *memory
	off, n  int
	next    int     // offset of the next write
	words   []*word // its words, if it is for atomic operations
	access  rds.Access
	ops     []*op
	offered map[netip.AddrPort]bool // the sockets it was ever granted to; port 0 is every port
	granted map[netip.AddrPort]bool // those that have learnt of it and not restarted since
	open    bool                    // it may be everybody's
	opened  bool                    // Expose has said that it is
	asked   bool                    // Release was called, or the socket closed
	ended   bool
	revoked bool   // Release returned: nothing may change any more
	after   uint64 // digest of the content then
	used    bool   // use-once: an operation was issued
}

func (e *endpoint) register(n int, access rds.Access) *region {
	w := e.w
	align := 1
	if access&rds.AllowAtomic != 0 {
		align = 8
	}
	m, off := e.c.carve(n, align)
	if m == nil || !e.open {
		return nil
	}
	r := &region{w: w, id: len(w.regions), e: e, life: e.h.life, mem: m, off: off, n: n, next: n / 2, access: access,
		offered: map[netip.AddrPort]bool{}, granted: map[netip.AddrPort]bool{}}
	copy(r.all(), r.init())
	if access&rds.AllowAtomic != 0 {
		r.newWords()
	}
	var err error
	r.r, err = e.s.Register(m.buf, off, n, access)
	if !e.open {
		return nil
	}
	must(err)
	w.regions = append(w.regions, r)
	e.regions = append(e.regions, r)
	w.log(e.h, "register", int64(r.id), int64(n), int64(access))
	return r
}

// init is the region's first content, guards included.
func (r *region) init() []byte { return content(uint64(r.id)+1<<40, r.n+2*guard) }

func (r *region) all() []byte   { return r.mem.b[r.off-guard : r.off+r.n+guard] }
func (r *region) bytes() []byte { return r.mem.b[r.off : r.off+r.n] }

// wasOffered reports whether the socket may be able to use the region.
func (r *region) wasOffered(ap netip.AddrPort) bool {
	return r.open || r.offered[ap] || r.offered[netip.AddrPortFrom(ap.Addr(), 0)]
}

// exposeToAll lets everybody use the region who shows its cookie.
func (r *region) exposeToAll() {
	if r.opened {
		return
	}
	r.open = true
	err := r.r.Expose(&turning{Context: context.Background(), h: r.e.h}, netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
	if r.e.open && r.access&rds.UseOnce == 0 {
		must(err)
	}
	r.opened = err == nil
}

// mayAll reports whether every socket may use the region for sure.
func (r *region) mayAll() bool { return r.opened && !r.w.opt.scarce() && r.access&rds.UseOnce == 0 }

// dead reports whether the region may have ended, so that an operation on it may be
// refused.
func (r *region) dead() bool {
	return r.asked || r.ended || r.e.h.life != r.life || !r.e.h.up || r.access&rds.UseOnce != 0 && r.used
}

// release calls Release and waits for it, while the world goes on.
func (r *region) release() {
	w := r.w
	w.log(r.e.h, "release", int64(r.id), 0, 0)
	r.asked = true
	r.e.regions = without(r.e.regions, r)
	var err error
	r.e.c.blocking(func() { err = r.r.Release(context.Background()) })
	if errors.Is(err, rds.ErrDaemonGone) || errors.Is(err, rds.ErrClosed) || !r.e.open && err != nil {
		return // died, or closed, while it waited
	}
	must(err)
	w.log(r.e.h, "released", int64(r.id), 0, 0)
	r.verify()
	r.revoked = true
	r.after = r.digest()
}

var digests = maphash.MakeSeed()

func (r *region) digest() uint64 { return maphash.Bytes(digests, r.all()) }

// verify checks every byte of the region and its guards.
func (r *region) verify() {
	if r.revoked {
		if r.digest() != r.after {
			broken("access", "region %d changed after Release had returned", r.id)
		}
		return
	}
	now := r.all()
	want := r.w.want[:len(now)]
	copy(want, r.init())
	for _, o := range r.ops {
		if o.writes() && o.fits() && r.words == nil {
			o.expect(want[guard+o.off:guard+o.off+o.n], now[guard+o.off:])
		}
	}
	if whole := len(r.words) * 8; whole > 0 {
		copy(want[guard:guard+whole], now[guard:]) // see word.check
	}
	if i := differ(now, want); i >= 0 {
		broken("access", "byte %d of region %d of %d bytes is %#x, want %#x: outside every operation or twice", i-guard, r.id, r.n, now[i], want[i])
	}
}

// learn notes that the receiver of message x knows a region now.
func (e *endpoint) learn(x *message, cookie rds.Cookie) {
	r := x.tells
	if r == nil {
		broken("cookie", "message %d carries cookie %#x that was not sent", x.id, uint64(cookie))
	}
	if cookie != 0 && cookie != r.r.Cookie() {
		broken("cookie", "message %d carries cookie %#x, sent was %#x", x.id, uint64(cookie), uint64(r.r.Cookie()))
	}
	e.w.log(e.h, "learn", int64(x.id), int64(r.id), 0)
	e.knows = append(e.knows, r)
	// A cookie's grant goes ahead of the cookie, whatever restarts. The grant of Expose may
	// have gone to an earlier life of this host.
	if r.open {
		// Whether there was room for a grant is known when it is used.
	} else if cookie != 0 || x.met == e.h.life || x.met == 0 && x.at > e.h.crashAt {
		r.granted[e.ap] = true
	}
	if len(e.knows) > 12 {
		e.knows = e.knows[1:]
	}
}

// forget notes that the host at a restarts, which voids its grants.
func (r *region) forget(a netip.Addr) {
	maps.DeleteFunc(r.granted, func(ap netip.AddrPort, _ bool) bool { return ap.Addr() == a })
}

// expose grants a region without its cookie. The cookie travels as data.
func (e *endpoint) expose(r *region, to netip.AddrPort) {
	w := e.w
	whom := to
	if w.rOp.IntN(3) == 0 {
		whom = netip.AddrPortFrom(to.Addr(), 0)
	}
	if e.lane > 0 && e.h.e.Halts() {
		return // a destination is opened for the lane, and with a full ring that waits for the end of the pause
	}
	r.offered[whom] = true
	e.offersOnce(r, to)
	if e.lane > 0 {
		e.flow(whom) // opens a destination, so that the daemon learns the lane
	}
	err := r.r.Expose(&turning{Context: context.Background(), h: e.h}, whom)
	if !e.open {
		return
	}
	if r.access&rds.UseOnce != 0 && err != nil || errors.Is(err, rds.ErrTooManyDestinations) {
		return // the region was used up, or there is no place for a destination
	}
	if w.opt.scarce() && errors.Is(err, syscall.ENOBUFS) {
		if w.saw("Expose refused"); e.h.rest != nil { // the turn waits where it said so
			e.c.mayRefuse(to.Addr())
			w.saw("Expose refused for a reason")
		}
		return
	}
	if w.byTCP(e.ap.Addr(), to.Addr()) {
		if !errors.Is(err, syscall.EOPNOTSUPP) {
			broken("access", "Expose of region %d to %v, which is reached by RDS/TCP: %v", r.id, to, err)
		}
		return
	}
	must(err)
	e.send(to, w.size(), extra{tells: r})
}

// offersOnce notes that e grants r to a socket, by its cookie or by Expose, if the grant
// may be refused.
func (e *endpoint) offersOnce(r *region, to netip.AddrPort) {
	if e.mayBeRefused(r, to) {
		e.offers++
	}
}

func (e *endpoint) mayBeRefused(r *region, to netip.AddrPort) bool {
	return r.access&rds.UseOnce != 0 || e.w.opt.scarce() || e.w.byTCP(e.ap.Addr(), to.Addr())
}

// turning is a context for calls that only wait for the daemon's next turn and check their
// context in between.
type turning struct {
	context.Context
	h     *host
	turns int
}

// mostTurns is far more than any such call takes.
const mostTurns = 10_000

func (t *turning) Err() error {
	h := t.h
	if t.turns++; t.turns > mostTurns {
		broken("hang", "a call waits for host %d: up %v, turn held %v, pauses %v, %d processes", h.n, h.up, h.rest != nil, h.e.Halts(), len(h.clients))
	}
	h.turn()
	return nil
}
