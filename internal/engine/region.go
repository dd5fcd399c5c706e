package engine

import (
	"errors"
	"fmt"
	"github.com/rdsd/rdsd/internal/chores"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// maxRegions bounds the regions of all clients.
const maxRegions = 1 << 16

// buffer is memory that a client got with Alloc. It is mapped here too, and registered for
// local use by the client's operations.
type buffer struct {
	id      uint32
	cl      *Client
	mem     []byte
	mr      verbs.MR
	users   int // operations and regions
	freeing bool
	onFree  func()      // unmaps; runs when nothing uses it any more
	waiting func(error) // behind onFree, for a client that waits
}

// has reports whether b has n bytes at off.
func (b *buffer) has(off, n uint64) bool {
	return off <= uint64(len(b.mem)) && n <= uint64(len(b.mem))-off
}

// region is part of a buffer that peers may be granted.
type region struct {
	id     uint32 // = rkey
	number uint32 // no other region of this daemon has it, not 0: a key may come back
	sock   *socket
	buf    *buffer
	off    uint64
	n      uint64
	mr     verbs.MR
	served verbs.Served // counts in its socket's, too
	cookie uint64
	rights abi.Rights
	exp    rdmaop.Export
	user   *txMsg // of a use-once region: the same-host message that uses it
	spent  bool   // one has used it, and told another socket than sock, or may have
	once   once   // whom it is granted to
	ended  bool   // its one use was told to sock: it is not the client's any more
	gone   bool   // nobody can use its key, but the device may touch its memory still

	inAll, inSock, inRevoking, inDead lists.Link[region]

	queued   lists.List[ctlMsg] // GRANTs that have not been acked
	grantees []*grantee         // peers with grants, by their keys

	flush   []flush     // lanes that have to confirm that nothing of theirs is on its way
	heard   []*peer     // lanes that have received REVOKE
	waiting func(error) // told when the key is dead
}

// regionRights is what a region may have.
const regionRights = abi.AnyRight | abi.UseOnce | abi.Open

// keyTable is the regions of all clients.
type keyTable struct {
	e *Engine

	by       map[uint32]*region  // by rkey
	numbered uint32              // number of the last region
	all      lists.List[region]  // in order of registration
	retiring chores.Work[region] // nobody can use their keys any more
	grantees lists.Pool[grantee]

	revoking chores.Rounds[region] // their keys are being taken back
	pressing chores.Chore          // of revoking, see tickRegions
	pressAt  int64                 // when to look at them, 0: there are none
}

// AddBuffer registers memory that a control goroutine mapped.
func (e *Engine) AddBuffer(c *Client, mem []byte, onFree func()) (uint32, error) {
	if c.dead {
		return 0, unix.ECONNABORTED
	}
	if len(c.buffers) >= MaxBuffers {
		return 0, fmt.Errorf("%w: this process has its %d buffers", unix.ENOBUFS, MaxBuffers)
	}
	mr, err := e.devices.regMR(failpoint.RegisterBuffer, mem, 0, verbs.AccessLocalWrite)
	if err != nil {
		return 0, err
	}
	c.nextBuf++
	b := &buffer{id: c.nextBuf, mem: mem, mr: mr, onFree: onFree}
	c.addBuffer(b)
	e.st.C[stats.RegisteredBytes] += uint64(len(mem))
	return b.id, nil
}

// addBuffer gives c a buffer, which uses its memory.
func (c *Client) addBuffer(b *buffer) {
	b.cl = c
	c.buffers[b.id] = b
	c.refs++
}

// DropBuffer ends a buffer that was added for c, which does not know of it.
func (e *Engine) DropBuffer(c *Client, number uint32) {
	if b := c.buffers[number]; b != nil && !c.dead {
		e.keys.freeBuffer(b, nil)
	}
}

// freeBuffer ends a buffer; its memory goes when its last operation, payload and
// region have ended. done, if not nil, runs then.
func (ks *keyTable) freeBuffer(b *buffer, done func(error)) {
	if !b.freeing {
		b.freeing, b.waiting = true, done
		ks.maybeFreeBuffer(b)
	}
}

func (ks *keyTable) maybeFreeBuffer(b *buffer) {
	if !b.freeing || b.users > 0 || b.mr == nil {
		return
	}
	mr := b.mr
	b.mr = nil
	_ = mr.Dereg()
	ks.e.devices.untouched(mr, func() { ks.freed(b) })
}

// freed forgets a buffer whose memory nothing touches any more.
func (ks *keyTable) freed(b *buffer) {
	e := ks.e
	delete(b.cl.buffers, b.id)
	e.st.C[stats.RegisteredBytes] -= uint64(len(b.mem))
	if b.onFree != nil {
		b.onFree()
	}
	if b.waiting != nil {
		b.waiting(nil)
	}
	e.clients.unref(b.cl)
}

// iovaTries bounds the attempts to find an address for a region: a driver that
// puts it where its memory is (siw) refuses one that is taken.
const iovaTries = 16

// register makes a region of b for socket s. Its address is random, so that nobody can guess a cookie: 29
// bits beside the 23 of a key of verbs/soft. Words stay aligned, and for an adapter pages.
func (ks *keyTable) register(s *socket, b *buffer, off, n uint64, rights abi.Rights) (*region, error) {
	e := ks.e
	if n == 0 || !b.has(off, n) {
		return nil, unix.EINVAL
	}
	rights &^= abi.PageOffset
	if rights&abi.AnyRight == 0 || rights&^regionRights != 0 {
		return nil, unix.EINVAL
	}
	if s.cl.user.Strict {
		rights &^= abi.Open
	}
	if err := e.users.mayRegion(s.cl); err != nil {
		return nil, err
	}
	access, kept := regionAccess(rights), uint64(7)
	for _, r := range e.devices.rails {
		if r.attr.Caps&verbs.CapAnyIOVA == 0 {
			kept = 0xfff
		}
	}
	var iova uint64
	var mr verbs.MR
	var err error
	for try := 0; try == 0 || try < iovaTries && errors.Is(err, unix.EEXIST); try++ {
		iova = uint64(uint32(e.cfg.Rand()))&^kept | off&kept
		mr, err = e.devices.regMR(failpoint.RegisterRegion, b.mem[off:off+n:off+n], iova, access)
	}
	if err != nil {
		return nil, err
	}
	if ks.numbered++; ks.numbered == 0 {
		ks.numbered = 1
	}
	r := &region{id: mr.RKey(), number: ks.numbered, sock: s, buf: b, off: off, n: n, mr: mr, rights: rights,
		cookie: rdmaop.MakeCookie(mr.RKey(), uint32(iova))}
	ks.list(r)
	return r, nil
}

// list has r found by its key, and counts it, and what is done to its memory.
func (ks *keyTable) list(r *region) {
	r.served.In, r.sock.served.In = &r.sock.served, &ks.e.watch.served
	if m, ok := r.mr.(verbs.Metered); ok {
		m.CountIn(&r.served)
	}
	r.buf.users++
	ks.by[r.id] = r
	r.sock.cl.acct.regions++
	ks.all.Add(&r.inAll, r)
	if !r.sock.closed {
		r.sock.regions.Add(&r.inSock, r)
	}
	ks.e.st.C[stats.Regions]++
}

// release is releaseRegion for the client, which is told once: done runs when
// nobody can touch the memory any more. EALREADY: it has asked before.
//
// A region that its one use has ended is not the client's any more. done then
// says EINVAL, as it is said later, when the key is not known any more; but it
// says so when nobody can touch the memory.
func (ks *keyTable) release(r *region, done func(error)) error {
	if r.waiting != nil {
		return fmt.Errorf("%w: region %#x is being released", unix.EALREADY, r.id)
	}
	r.waiting = done
	ks.releaseRegion(r)
	return nil
}

// usedUp is what Release says of a region that its one use has ended.
func (r *region) usedUp() error {
	if r.ended {
		return fmt.Errorf("%w: region %#x was for one use and had it", unix.EINVAL, r.id)
	}
	return nil
}

// releaseRegion takes a region's key back from everybody.
func (ks *keyTable) releaseRegion(r *region) {
	e := ks.e
	if r.exp.State() != rdmaop.ExportLive {
		return
	}
	r.sock.regions.Del(&r.inSock)
	ks.withdrawGrants(r)
	ks.askGrantees(r)
	ks.tellRevoke(r, r.exp.Revoke(nil, e.now+e.cfg.RevokeTimeout))
}

// retire ends a region whose key nobody holds.
func (ks *keyTable) retire(r *region) {
	ks.retiring.Del(&r.inDead)
	if r.gone {
		return
	}
	r.gone = true
	_ = r.mr.Dereg()
	for r.queued.N > 0 { // to a peer that is gone
		r.queued.Head.Of.endGrant()
	}
	ks.revoking.Del(&r.inRevoking)
	ks.e.devices.untouched(r.mr, func() { ks.untouched(r) })
}

// untouched forgets a region whose memory nothing touches any more, and tells who waits for that.
func (ks *keyTable) untouched(r *region) {
	if ks.by[r.id] == r { // else another one has its key
		delete(ks.by, r.id)
	}
	r.sock.cl.acct.regions--
	ks.all.Del(&r.inAll)
	ks.e.st.C[stats.Regions]--
	r.buf.users--
	ks.maybeFreeBuffer(r.buf)
	if r.waiting != nil {
		r.waiting(r.usedUp())
		r.waiting = nil
	}
}
