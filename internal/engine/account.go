package engine

import (
	"reflect"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// account is what all processes that count for one user, or for one cgroup (quota.accounts), have
// of the engine. It exists from the attachment of its first process until nothing of the last one is left.
// Engine-owned.
type account struct {
	of      config.Account // quota.User.Account
	quota   config.Quota   // of the process that attached last
	clients int            // attached, or with memory still in use

	sockets, dests, ops, regions, grants int
	segs                                 int    // local segments of these ops
	opMemory                             uint64 // counted in quota.Memory for them, see opsHeld

	taker *taker // of the first rota that it takes turns in, nil: in none, or only in others

	leaving int // clients that are being ended: what they have counts until then

	peers int // it asked for that were never met: see mayPeer

	waiting  audience            // destinations whose messages wait for a place, not counted in dests
	idle     lists.List[slot]    // destinations that have a place, and had nothing under way when they were listed
	inWanted lists.Link[account] // userTable.wanted

	overBytes int                 // bytes of daemon memory: see overflow.go
	windows   []*shm.Arena        // what they are in
	refused   lists.List[socket]  // those that refused for want of it
	inShort   lists.Link[account] // overflow.short
}

// userTable is the users with attached processes, or with something left of one.
type userTable struct {
	e *Engine

	mem      *quota.Memory               // sessions take from it
	accounts map[config.Account]*account // by account.of
	wanted   lists.List[account]         // with destinations that wait for places
}

// account returns the account that is called of, which it opens if there is none.
func (u *userTable) account(of config.Account) *account {
	a := u.accounts[of]
	if a == nil {
		a = &account{of: of}
		u.accounts[of] = a
	}
	return a
}

// enter counts c to its user's account.
func (u *userTable) enter(c *Client) {
	a := u.account(c.user.Account)
	a.clients++
	a.quota = c.user.Quota
	c.acct = a
}

// leave ends c's part of its account.
func (u *userTable) leave(c *Client) {
	a := c.acct
	if a.clients--; a.clients == 0 { // a peer that is asked for may keep the account
		u.mem.Drop(&c.user, a.opMemory)
		a.opMemory = 0
	}
	u.dropAccount(a)
}

func (u *userTable) dropAccount(a *account) {
	if a.clients == 0 && a.peers == 0 {
		u.e.rx.overflow.short.Del(&a.inShort)
		u.wanted.Del(&a.inWanted)
		delete(u.accounts, a.of)
	}
}

// maySocket is nil if c's user may bind one more socket.
func (u *userTable) maySocket(c *Client) error {
	err := c.user.May(config.Sockets, uint64(c.acct.sockets), 1)
	if err != nil {
		u.e.st.C[stats.QuotaRefused]++
	}
	return err
}

// operations counts n more or fewer operations of c. mayOperate says whether they may go on: ENOBUFS, there are
// too many with them.
func (u *userTable) operations(c *Client, n int) {
	c.acct.ops += n
	u.opsHeld(c)
}

var (
	opBytes  = uint64(reflect.TypeFor[txOp]().Size())
	segBytes = uint64(reflect.TypeFor[rdmaop.Seg]().Size() + reflect.TypeFor[*buffer]().Size())
)

const opBytesStep = 256 << 10

// opsHeld counts what the operations of c's user take of the daemon's memory: the most that they
// took since the user's first process, because the pools keep it.
func (u *userTable) opsHeld(c *Client) {
	a := c.acct
	for uint64(a.ops)*opBytes+uint64(a.segs)*segBytes > a.opMemory {
		u.mem.Hold(&c.user, opBytesStep)
		a.opMemory += opBytesStep
	}
}

// maySegment is nil if an operation of c may have one more local segment.
func (u *userTable) maySegment(c *Client) unix.Errno {
	if c.acct.segs >= maxSegs {
		u.e.st.C[stats.QuotaRefused]++
		return unix.ENOBUFS
	}
	return 0
}

// useSegment gives o, an operation of c, one more local segment: n bytes of b at off.
func (u *userTable) useSegment(c *Client, o *txOp, b *buffer, off uint64, n uint32) {
	u.segments(c, 1)
	o.Segs, o.bufs = append(o.Segs, rdmaop.Seg{LKey: b.mr.LKey(), Addr: off, Len: n}), append(o.bufs, b)
	b.users++
}

// segments counts n more or fewer local segments of c's operations.
func (u *userTable) segments(c *Client, n int) {
	c.segs += n
	c.acct.segs += n
	u.opsHeld(c)
}

func (u *userTable) mayOperate(c *Client) unix.Errno {
	if uint64(c.acct.ops) > c.user.Quota[config.Operations] {
		u.e.st.C[stats.QuotaRefused]++
		return unix.ENOBUFS
	}
	return 0
}

// mayRegion is nil if c may have one more region.
func (u *userTable) mayRegion(c *Client) error {
	e := u.e
	err := c.user.MayShare("regions", c.acct.regions, len(e.keys.by), maxRegions)
	if err != nil {
		e.st.C[stats.QuotaRefused]++
	}
	return err
}

// mayPeer is nil if c (nil: no client) may ask for one more peer. A user's
// share is what it asked for and was never met, so that addresses where nobody
// is leave room for others.
func (u *userTable) mayPeer(c *Client) error {
	e := u.e
	by, has := quota.Daemon, 0
	if c != nil {
		by, has = &c.user, c.acct.peers
	}
	err := by.MayShare("peers", has, len(e.peers.all), e.cfg.MaxPeers)
	if err != nil && e.peers.dropUnused() {
		err = by.MayShare("peers", has, len(e.peers.all), e.cfg.MaxPeers)
	}
	if err != nil {
		e.st.C[stats.QuotaRefused]++
	}
	return err
}

// asked counts p, new, to a until it is met or forgotten.
func (u *userTable) asked(p *peer, a *account) {
	p.askedBy = a
	a.peers++
}

func (u *userTable) askedNoMore(p *peer) {
	if a := p.askedBy; a != nil {
		p.askedBy = nil
		a.peers--
		u.dropAccount(a)
	}
}
