package engine

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// A grant costs memory here and in the peer's daemon, whose table for this host has room
// for Config.MaxGrants grants. This daemon divides both among its users, because only it
// knows whose a grant is. A user has a quota of grants to all peers, and of a peer's table
// what mayShare allows. A grant counts from when it is made until the peer cannot use it
// any more.

// shares are how much of a peer's table each user takes.
type shares struct {
	all int
	of  map[*account]int
}

// errTaken is why a peer that was granted a key does not take it, see grantRefused.
var errTaken = errors.New("the peer refused a grant")

// mayGrant is nil if the user of r may have one more grant, to host, which keeps it in its table.
// This host keeps none, and its table is nil. ENOBUFS.
func (ks *keyTable) mayGrant(r *region, host netip.Addr, table *shares) error {
	e := ks.e
	c := r.sock.cl
	err := c.user.May(config.Grants, uint64(c.acct.grants), 1)
	if err == nil && table != nil {
		if err = c.user.MayShare("grants", table.of[c.acct], table.all, e.cfg.MaxGrants); err != nil {
			err = fmt.Errorf("%w (to %v)", err, host)
		}
	}
	if err != nil {
		e.st.C[stats.QuotaRefused]++
	}
	return err
}

// grantTo notes that the socket at port of p may use r. need: that is new. The errors are those of grant.
func (ks *keyTable) grantTo(p *peer, r *region, port uint16) (need bool, err error) {
	ks.current(r, p.remote)
	if r.exp.Granted(p.key, port) {
		return false, nil
	}
	if need, err = ks.grant(r, p.addr, &p.shares, p.key, port); err == nil {
		ks.noteGrants(r, p, 1)
	}
	return need, err
}

// grant notes that the socket at port of key, an address of host, may use r, which it may not yet. host is
// the zero Addr for this one; table is as for mayGrant. EINVAL: r is being
// released; ENOBUFS: r, its user or the peer has as many grants as there can be.
func (ks *keyTable) grant(r *region, host netip.Addr, table *shares, key verbs.PeerKey, port uint16) (need bool, err error) {
	if r.exp.State() != rdmaop.ExportLive {
		return false, fmt.Errorf("%w: region %#x is being released", unix.EINVAL, r.id)
	}
	if err := r.mayOnce(host); err != nil {
		return false, err
	}
	if err := ks.mayGrant(r, host, table); err != nil {
		return false, err
	}
	need, errno := r.exp.GrantTo(key, port)
	if errno != 0 {
		return false, fmt.Errorf("%w: region %#x is granted to %d sockets, as many as it can be: register the memory again for more", errno, r.id, rdmaop.MaxGrantees)
	}
	r.once = once{true, host}
	r.sock.cl.acct.grants++
	return need, nil
}

// once is the host that a region for one use is granted to. There can be only one: which of
// two hosts used the region first would be known only after both were asked, and the owner
// has its message by then.
type once struct {
	set  bool
	host netip.Addr // the zero Addr: this one
}

// mayOnce is nil if r may be granted to host. Regions for one use
// may be to one host. EBUSY: it was to another; EINVAL: it may have been used.
func (r *region) mayOnce(host netip.Addr) error {
	switch {
	case r.rights&abi.UseOnce == 0:
		return nil
	case r.spent:
		return fmt.Errorf("%w: region %#x is for one use and had it, or may have had it: release it and register the memory again", unix.EINVAL, r.id)
	case r.once.set && r.once.host != host:
		return fmt.Errorf("%w: region %#x is for one use and was granted to another host: register the memory again for this one", unix.EBUSY, r.id)
	}
	return nil
}

// unsent counts the GRANTs of r that h has not been sent.
func (r *region) unsent(h *remote) (n int) {
	for at := r.queued.Head; at != nil; at = at.Next {
		if m := at.Of; m.p.remote == h && !m.m.EverSent() {
			n++
		}
	}
	return n
}

// count notes n more grants of a's.
func (s *shares) count(a *account, n int) {
	if s.of == nil {
		s.of = map[*account]int{}
	}
	s.all += n
	if s.of[a] += n; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// gaveBack notes that p's grants of r have ended: it answered, or cannot use them
// any more.
func (ks *keyTable) gaveBack(r *region, p *peer) {
	if n := r.exp.PeerRevoked(p.key); n > 0 {
		r.sock.cl.acct.grants -= n
		ks.noteGrants(r, p, -n)
	}
}

// offer is how a socket gets to know of a region.
type offer bool

const (
	byExpose offer = false
	byCookie offer = true // by a message with its cookie, which its socket is told of
)

// expose grants r to a socket (port 0: all) of a peer, ahead of any message
// that a socket of r's client sends there later in r's lane. The sockets of all the peer's lanes may
// use it. At :: and port 0 r is open from now on.
func (ks *keyTable) expose(r *region, addr netip.Addr, port uint16) error {
	if addr == netip.IPv6Unspecified() && port == 0 {
		return ks.open(r)
	}
	addr = addr.Unmap()
	w, err := ks.e.dests.wayTo(r.sock, addr)
	if err != nil {
		return err
	}
	return w.expose(r, port, byExpose)
}

// open lets everybody use r who shows its cookie.
func (ks *keyTable) open(r *region) error {
	switch {
	case r.exp.State() != rdmaop.ExportLive:
		return fmt.Errorf("%w: region %#x is being released", unix.EINVAL, r.id)
	case r.sock.cl.user.Strict:
		return fmt.Errorf("%w: keys.strict names %v: expose the region to each host, or change the daemon's configuration", unix.EACCES, r.sock.cl.user)
	}
	r.rights |= abi.Open
	return nil
}

func (p *peer) expose(r *region, port uint16, by offer) error {
	var number uint64
	if by == byExpose && p.several() {
		number = p.c.e.peers.tick()
	}
	return p.exposeAt(r, port, by, number)
}

// exposeAt is expose at a former time.
func (p *peer) exposeAt(r *region, port uint16, by offer, number uint64) error {
	e := p.c.e
	if !p.c.profile().rdma {
		return errOnTCP
	}
	need, err := false, error(nil)
	if p.c.profile().grants && !r.exp.Granted(p.key, port) {
		err = p.maySay(r)
	}
	if err == nil {
		need, err = e.keys.grantTo(p, r, port)
	}
	if err != nil {
		e.peers.dropIfNew(p)
		return err
	}
	if !need {
		p.exposeToo(r, port, by)
		return nil
	}
	r.mr.Allow(p.who)
	if !p.c.profile().grants {
		return nil // the cookie is all it needs
	}
	m := e.peers.ctl(p, wire.TypeGrant, r.id)
	m.port, m.region, m.by, m.number = port, r, by, number
	m.m.Owed = by == byCookie // a message that it is ahead of is not, or the peer has asked
	r.queued.Add(&m.inRegion, m)
	if by == byExpose && p.several() {
		p.holdsFor(m)
	}
	g := wire.Grant{Cookie: r.cookie, Length: r.n, Rights: uint32(r.rights &^ abi.Open), Owner: r.sock.port, Grantee: port, OwnerInc: r.sock.inc, Region: r.number}
	e.peers.sendCtl(p, m, g.Append(m.buf[:0]))
	e.st.C[stats.GrantsSent]++
	return nil
}

// exposeToo has Expose of a region that is granted to port of p already hold for messages what it holds
// for others: the GRANT may be one that was made for a message with the cookie, and not be acked.
func (p *peer) exposeToo(r *region, port uint16, by offer) {
	if by != byExpose || !p.several() {
		return
	}
	for at := r.queued.Head; at != nil; at = at.Next {
		if m := at.Of; m.p == p && m.by == byCookie && (m.port == port || m.port == rdmaop.AnyPort) {
			m.by = byExpose // with number 0
			p.holdsFor(m)
		}
	}
}

// grantCookie grants the key that t carries to the message's destination, ahead
// of it; false: it cannot be granted, and t has ended. A key that has been
// released meanwhile travels as it is: its use will be refused. A message whose
// destination leads nowhere yet has its key granted when it does.
func (ks *keyTable) grantCookie(t *txMsg) bool {
	sl := t.slot
	r := ks.by[uint32(t.m.DestCookie)]
	t.ungranted = false
	if r == nil || r.sock.cl != t.sock.cl || r.exp.State() != rdmaop.ExportLive {
		return true
	}
	err := sl.way.expose(r, sl.port, byCookie)
	if err == nil {
		return true
	}
	sl.unqueue(t)
	if !errors.As(err, &t.errno) {
		t.errno = unix.ENOBUFS
	}
	ks.e.tx.msgDone(t, msg.OpRefused)
	return false
}

// grantAgain is grantCookie for a new instance of the peer's daemon, of a message
// that its connection has: it goes out whatever comes of it, and its socket is told
// once, however often the peer restarts.
func (ks *keyTable) grantAgain(t *txMsg) {
	r := ks.by[uint32(t.m.DestCookie)]
	if r == nil || r.sock.cl != t.sock.cl || r.exp.State() != rdmaop.ExportLive {
		return
	}
	if err := t.slot.way.expose(r, t.slot.port, byCookie); err != nil && !t.toldUngranted {
		t.toldUngranted = true
		t.slot.ungranted++
		ks.e.clients.note(t.slot)
	}
}

// regrant grants anew what t, a GRANT that waits for p, would grant a new instance of
// the peer's daemon. If the grant cannot be made, t must not go out as a GRANT: an
// operation with the key would cost both hosts the connection. t keeps its place,
// because the peer may wait for it (conn.Conn.Withdraw), and becomes a REVOKE of the key.
// If t was made for a message with the cookie, that comes next (grantAgain).
// A REVOKE that waits is one by itself for the new instance, whose predecessor may have heard the others.
func (ks *keyTable) regrant(p *peer, t *ctlMsg) {
	r := t.region
	if r == nil {
		if t.m.Internal == wire.TypeRevoke && t.rkey != 0 {
			(&wire.Revoke{RKey: t.rkey, Lanes: 1}).Append(t.m.Data[:0])
		}
		return
	}
	_, err := ks.grantTo(p, r, t.port)
	if err == nil {
		r.mr.Allow(p.who)
		return
	}
	t.endGrant()
	t.rkey, t.m.Internal = 0, wire.TypeRevoke // 0: nobody waits to hear of it
	(&wire.Revoke{RKey: r.id, Lanes: 1}).Append(t.m.Data[:0])
	if r.exp.State() == rdmaop.ExportLive && t.by == byExpose {
		ks.tellNotGranted(r, p, t.port)
	}
}

// withdrawGrants takes back the grants of r that wait to be sent: the peers know
// nothing of them.
func (ks *keyTable) withdrawGrants(r *region) {
	var next *lists.Link[ctlMsg]
	for n := r.queued.Head; n != nil; n = next {
		next = n.Next
		m := n.Of
		p, port := m.p, m.port
		if p.c.Withdraw(&m.m) { // it has ended
			ks.ungrant(r, p, port)
			ks.e.peers.dropIfNew(p)
		}
	}
}

// cancelGrants has the grants of r that were posted to h and not acked not go out
// again.
func (ks *keyTable) cancelGrants(r *region, h *remote) {
	var next *lists.Link[ctlMsg]
	for n := r.queued.Head; n != nil; n = next {
		next = n.Next
		if m := n.Of; m.p.remote == h {
			m.p.c.Cancel(&m.m, msg.Cancelled)
		}
	}
}

// ungrant notes that a grant came to nothing, and reports whether there was one. It
// leaves the grants of a region that is being released: they say that the peer was
// asked for the key, and end with its answer or when it cannot answer any more.
func (ks *keyTable) ungrant(r *region, p *peer, port uint16) bool {
	ks.current(r, p.remote)
	ok := r.exp.State() == rdmaop.ExportLive && r.exp.Ungrant(p.key, port)
	if ok {
		r.sock.cl.acct.grants--
		ks.noteGrants(r, p, -1)
	}
	return ok
}

// takeGrant takes a GRANT that arrived on p.
func (ks *keyTable) takeGrant(p *peer, g *wire.Grant) {
	e := ks.e
	e.st.C[stats.GrantsReceived]++
	err := p.grants.Add(rdmaop.Grant{Cookie: g.Cookie, Len: g.Length, Rights: abi.Rights(g.Rights), Port: g.Grantee,
		Owner: rdmaop.Owner{Port: g.Owner, Inc: g.OwnerInc}, Region: g.Region})
	if err == nil {
		return
	}
	over := errors.Is(err, rdmaop.ErrGrantOver) // that happens: they crossed
	if !over {
		e.cfg.Trace(p.place(), "grant refused", err)
	}
	if !e.peers.mayAnswer(p) {
		return
	}
	n := wire.GrantNak{RKey: uint32(g.Cookie), Grantee: g.Grantee, Reason: wire.NakConflict}
	switch {
	case errors.Is(err, rdmaop.ErrTooManyGrants):
		n.Reason = wire.NakFull
	case over:
		n.Reason = wire.NakOver
	}
	m := e.peers.ctl(p, wire.TypeGrantNak, n.RKey)
	e.peers.sendCtl(p, m, n.Append(m.buf[:0]))
}

// nakText says what GRANT_NAK's reason means.
func nakText(reason uint16) string {
	switch reason {
	case wire.NakFull:
		return "it has as many grants of this host as it can keep"
	case wire.NakConflict:
		return "it knows the key as another region's"
	}
	return fmt.Sprintf("reason %d", reason)
}

// grantRefused takes a GRANT_NAK that arrived on p: whoever exposed the region, or
// sent its cookie, is told that the destination cannot use it.
func (ks *keyTable) grantRefused(p *peer, n *wire.GrantNak) {
	r := ks.by[n.RKey]
	if r == nil || !ks.ungrant(r, p, n.Grantee) {
		return // nobody waits for its use
	}
	if n.Reason != wire.NakOver {
		ks.e.cfg.Trace(p.place(), "grant refused by peer", fmt.Errorf("%w of region %#x: %s", errTaken, r.id, nakText(n.Reason)))
	}
	if r.rights&abi.Open == 0 || n.Grantee != rdmaop.AnyPort { // who asked is told
		ks.tellNotGranted(r, p, n.Grantee)
	}
}

// tellNotGranted tells r's owner that the socket at port of p cannot use it. It may
// never have had a destination there, or not any more.
func (ks *keyTable) tellNotGranted(r *region, p *peer, port uint16) {
	ks.e.clients.note(&slot{sock: r.sock, cell: &cell{sock: r.sock}, addr: p.addr, port: port, closed: true, told: told{ungranted: 1}})
}
