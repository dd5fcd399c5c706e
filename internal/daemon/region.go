package daemon

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// maxRegions bounds the regions of all clients.
const maxRegions = 1 << 16

// buffer is memory a client got with Alloc: mapped here too, registered for
// local use by its operations.
type buffer struct {
	id      uint32
	cl      *client
	mem     []byte
	mr      verbs.MR
	users   int // operations and regions
	freeing bool
	onFree  func() // unmaps; runs when nothing uses it any more
}

// region is part of a buffer that peers may be granted.
type region struct {
	id     uint32 // = rkey
	cl     *client
	sock   *socket
	buf    *buffer
	off    uint64
	n      uint64
	mr     verbs.MR
	cookie uint64
	rights rdmaop.Rights
	exp    rdmaop.Export
	user   *txMsg // of a use-once region: the same-host message that uses it
	spent  bool   // one has used it, and told another socket than sock
	ended  bool   // its one use was told to sock: it is not the client's any more

	inAll, inSock, inRevoking link[region]

	waiting func(error) // told when the key is dead
}

// addBuffer registers memory that a control goroutine mapped.
func (e *Engine) addBuffer(c *client, mem []byte, onFree func()) (*buffer, error) {
	if c.dead {
		return nil, unix.ECONNABORTED
	}
	if len(c.buffers) >= maxBuffers {
		return nil, fmt.Errorf("%w: this process has its %d buffers", unix.ENOBUFS, maxBuffers)
	}
	mr, err := e.regMR(failpoint.RegisterBuffer, mem, 0, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	c.nextBuf++
	b := &buffer{id: c.nextBuf, cl: c, mem: mem, mr: mr, onFree: onFree}
	c.buffers[b.id] = b
	c.refs++
	e.st.C[stats.RegisteredBytes] += uint64(len(mem))
	return b, nil
}

// freeBuffer ends a buffer; its memory goes when its last operation and region
// have ended. EBUSY, with done non-nil, while regions of it are registered.
func (e *Engine) freeBuffer(b *buffer, done func(error)) {
	if b.freeing {
		if done != nil {
			done(unix.EINVAL)
		}
		return
	}
	if done != nil && b.users > 0 {
		done(unix.EBUSY)
		return
	}
	b.freeing = true
	e.maybeFreeBuffer(b)
	if done != nil {
		done(nil)
	}
}

func (e *Engine) maybeFreeBuffer(b *buffer) {
	if !b.freeing || b.users > 0 || b.mr == nil {
		return
	}
	b.mr.Dereg()
	b.mr = nil
	delete(b.cl.buffers, b.id)
	e.st.C[stats.RegisteredBytes] -= uint64(len(b.mem))
	if b.onFree != nil {
		b.onFree()
	}
	e.unref(b.cl)
}

// register makes a region of b for socket s. iova is a random 32-bit value,
// page aligned as the buffer is, so that nobody can guess remote addresses.
func (e *Engine) register(s *socket, b *buffer, off, n uint64, rights rdmaop.Rights) (*region, error) {
	if n == 0 || off > uint64(len(b.mem)) || n > uint64(len(b.mem))-off {
		return nil, unix.EINVAL
	}
	if rights&(rdmaop.RightRead|rdmaop.RightWrite|rdmaop.RightAtomic) == 0 {
		return nil, unix.EINVAL
	}
	if len(e.regions) >= maxRegions {
		e.st.C[stats.QuotaRefused]++
		return nil, fmt.Errorf("%w: the daemon has its %d regions", unix.ENOBUFS, maxRegions)
	}
	access := verbs.AccessRestricted | verbs.AccessLocalWrite
	if rights&rdmaop.RightRead != 0 {
		access |= verbs.AccessRemoteRead
	}
	if rights&rdmaop.RightWrite != 0 {
		access |= verbs.AccessRemoteWrite
	}
	if rights&rdmaop.RightAtomic != 0 {
		access |= verbs.AccessRemoteAtomic
	}
	iova := uint64(uint32(e.cfg.Rand()))&^0xfff | off&0xfff
	mr, err := e.regMR(failpoint.RegisterRegion, b.mem[off:off+n:off+n], iova, access)
	if err != nil {
		return nil, err
	}
	r := &region{id: mr.RKey(), cl: s.cl, sock: s, buf: b, off: off, n: n, mr: mr, rights: rights,
		cookie: rdmaop.MakeCookie(mr.RKey(), uint32(iova))}
	b.users++
	e.regions[r.id] = r
	e.regionsV.add(&r.inAll, r)
	s.regions.add(&r.inSock, r)
	e.st.C[stats.Regions]++
	return r, nil
}

// expose grants r to a socket (port 0: all) of a peer, ahead of any message
// sent to that peer later.
func (e *Engine) expose(r *region, peerAddr netip.Addr, port uint16) error {
	p, key, err := e.exportPeer(r.sock.local, peerAddr)
	if err != nil {
		return err
	}
	need, errno := r.exp.GrantTo(key, port)
	if errno != 0 {
		return errno
	}
	if !need || p == nil {
		return nil
	}
	r.mr.Allow(key)
	body := e.ctl(p, wire.TypeGrant, r.id)
	body.port = port
	g := wire.Grant{Cookie: r.cookie, Length: r.n, Rights: uint32(r.rights), Owner: r.sock.port, Grantee: port, OwnerInc: r.sock.inc}
	e.sendCtl(p, body, g.Append(body.buf[:0]))
	e.st.C[stats.GrantsSent]++
	return nil
}

// exportPeer returns the peer that addr leads to and its key; on the same host
// there is no peer, and the key is the address's own.
func (e *Engine) exportPeer(l *local, addr netip.Addr) (*peer, verbs.PeerKey, error) {
	if t := e.locals[addr]; t != nil {
		return nil, t.key, nil
	}
	p, err := e.peer(l, addr)
	if err != nil {
		return nil, 0, err
	}
	return p, p.key, nil
}

// attachCookie puts a cookie of this client on a message and grants it to the
// message's destination first. A key that has been released meanwhile travels
// as it is: its use will be refused.
func (e *Engine) attachCookie(t *txMsg, cookie uint64) {
	t.m.DestCookie = cookie
	if r := e.regions[uint32(cookie)]; r != nil && r.cl == t.cl {
		_ = e.expose(r, t.slot.addr, t.slot.port)
	}
}

// release is releaseRegion for the client, which is told once: done runs when
// nobody can touch the memory any more. EALREADY: it has asked before.
//
// A region that its one use has ended is not the client's any more. done then
// says EINVAL, as it is said later, when the key is not known any more; but it
// says so when nobody can touch the memory.
func (e *Engine) release(r *region, done func(error)) error {
	if r.waiting != nil {
		return fmt.Errorf("%w: region %#x is being released", unix.EALREADY, r.id)
	}
	r.waiting = done
	e.releaseRegion(r)
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
func (e *Engine) releaseRegion(r *region) {
	if r.exp.State() != rdmaop.ExportLive {
		return
	}
	r.sock.regions.del(&r.inSock)
	e.tellRevoke(r, r.exp.Revoke(nil, e.now+e.cfg.RevokeTimeout))
}

// tellRevoke sends REVOKE to the peers that hold r, and retires it at once if
// there are none.
func (e *Engine) tellRevoke(r *region, keys []verbs.PeerKey) {
	e.st.C[stats.Revokes]++
	for _, k := range keys {
		p := e.peerByKey(k)
		if p == nil {
			r.exp.PeerRevoked(k) // same host: no operation is in flight between turns
			continue
		}
		// Of grants that still wait the peer knows nothing.
		if e.withdrawGrants(p, r) {
			r.exp.PeerRevoked(k)
			e.dropIfNew(p)
			continue
		}
		m := e.ctl(p, wire.TypeRevoke, r.id)
		e.sendCtl(p, m, (&wire.Revoke{RKey: r.id}).Append(m.buf[:0]))
		if p.c.State() == conn.Down {
			r.exp.PeerRevoked(k)
		}
	}
	if r.exp.State() == rdmaop.ExportRevoked {
		e.retire(r)
		return
	}
	e.revoking.add(&r.inRevoking, r)
	if e.revokeAt == 0 {
		e.revokeAt = e.now + revokeScanNs
	}
	e.armTimer(e.revokeAt)
}

// withdrawGrants takes back the grants of r that wait for p and reports whether
// those were all.
func (e *Engine) withdrawGrants(p *peer, r *region) bool {
	return p.c.WithdrawControl(func(m *connMsg) bool {
		g, ok := m.Owner.(*ctlMsg)
		return ok && m.Internal == wire.TypeGrant && g.rkey == r.id
	}) == r.exp.Held(p.key)
}

// revokeDown counts a peer whose queue pair is gone as having given back every
// key it was asked for: nothing of the old connection can touch the memory, and
// on the next one it posts no operation before the REVOKE that waits for it
// (HELLO's notice).
func (e *Engine) revokeDown(p *peer) {
	var next *link[region]
	for n := e.revoking.head; n != nil; n = next {
		next = n.next
		if r := n.of; r.exp.PeerRevoked(p.key) == rdmaop.ExportRevoked {
			e.retire(r)
		}
	}
}

// retire ends a region whose key nobody holds.
func (e *Engine) retire(r *region) {
	if e.regions[r.id] != r {
		return
	}
	r.mr.Dereg()
	delete(e.regions, r.id)
	e.regionsV.del(&r.inAll)
	e.revoking.del(&r.inRevoking)
	e.st.C[stats.Regions]--
	r.buf.users--
	e.maybeFreeBuffer(r.buf)
	if r.waiting != nil {
		r.waiting(r.usedUp())
		r.waiting = nil
	}
}

// usedKey ends a use-once region when the message that chases its operation
// has arrived at the socket that owns it. All who hold the key are told, also
// the one that used it: a grant that crossed the use must not make the key good
// again.
func (e *Engine) usedKey(s *socket, rkey uint32) {
	r := e.regions[rkey]
	if r == nil || r.sock != s || r.rights&rdmaop.UseOnce == 0 || r.exp.State() != rdmaop.ExportLive {
		return
	}
	r.ended = true
	e.releaseRegion(r)
}

// tickRegions breaks off the queue pairs of peers that keep a revoked key too
// long: then they cannot use it either.
func (e *Engine) tickRegions() {
	if e.revokeAt == 0 || e.now < e.revokeAt {
		e.armTimer(e.revokeAt)
		return
	}
	e.revokeAt = 0
	var next *link[region]
	for n := e.revoking.head; n != nil; n = next {
		next = n.next
		r := n.of
		for _, k := range r.exp.Timeout(nil, e.now) {
			r.mr.Disallow(k)
			if p := e.peerByKey(k); p != nil {
				p.c.Reset(e.now, errRevokeTimeout)
				e.touch(p)
			}
			r.exp.PeerGone(k)
		}
		if r.exp.State() == rdmaop.ExportRevoked {
			e.retire(r)
		}
		if next != nil && !next.on() {
			next = e.revoking.head // the reset retired it
		}
	}
	if e.revoking.n > 0 {
		e.revokeAt = e.now + revokeScanNs
		e.armTimer(e.revokeAt)
	}
}
