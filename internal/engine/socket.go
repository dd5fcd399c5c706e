package engine

import (
	"fmt"
	"maps"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
)

// socket is one bound RDS socket. Engine-owned.
type socket struct {
	handover.InState
	cl     *Client
	handle uint32 // shm.SockHandle
	local  *localAddr
	port   uint16
	inc    uint32 // incarnation: tells this socket from the port's next owner
	closed bool
	left   bool   // it is off its port, which may be another socket's
	lane   uint8  // of its connections
	laned  bool   // lane is fixed
	row    uint16 // in the engine's lists, 0: none

	regions lists.List[region] // live ones
	slots   lists.List[slot]   // its open destinations
	folded  *slot              // what closed ones have to tell beyond what is kept of each, nil: nothing

	sending
	receiving
	took *times // nil before its first destination: it has sent nothing

	ping func(now int64) // a daemon-owned port that waits for a pong
}

// sending is what a socket has submitted.
type sending struct {
	txs      lists.List[txMsg] // not yet returned
	taker    *taker            // of the first rota that it takes turns in, nil: in none, or only in others
	sndMsgs  int               // datagrams of those, and their bytes
	sndBytes int
	sent     total // since it was bound
	ops      int   // operations not yet settled
	unended  int   // of txs, those that a socket that ends has not looked at

	// Messages without operations to peers, in this period of fewIn and the one before.
	counted, before int
	countAt         int64
}

// receiving is what has arrived for a socket, and the receive memory that it uses.
type receiving struct {
	limit     int          // receive buffer, payload bytes
	rcvBytes  int          // delivered or waiting, not yet taken by the application
	rcvMsgs   int          // the messages that have any of it
	got       total        // since it was bound
	served    verbs.Served // by RDMA of others with its regions; counts in watching's, too
	congested bool
	congAt    Wall // when it became so

	rxIDs  int // receive ids that it has, rxTold of them told to the client
	rxTold int
	rxMem  int // bytes of the receive arena, rounded

	partials  lists.List[rxMsg]  // messages under assembly
	over      lists.List[rxMsg]  // arrived, no room at the client yet
	overSum   int                // datagrams of those
	overBytes int                // bytes of those datagrams
	overHeads int                // bytes of those that are no payload: lengths and padding of runs
	pend      lists.Link[socket] // pending.pendSocks
	overrun   bool               // a kernel sent more than there is memory for, see there
	forMemory lists.Link[socket] // account.refused: it refused for want of daemon memory

	waiters  lists.List[slot]   // slots of this host stopped because this socket refused
	toWake   int                // of the first of them, while it is in loop.rousing
	inRoused lists.Link[socket] // loop.rousing
}

// bind makes a socket for c. Errors carry an errno: EADDRNOTAVAIL, EADDRINUSE,
// EINVAL, EACCES with the rule of the bind policy, ESHUTDOWN: drained.
func (as *addresses) bind(c *Client, ap netip.AddrPort, rcvbuf int) (*socket, error) {
	e := as.e
	addr := ap.Addr().Unmap()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr == broadcast:
		return nil, unix.EINVAL
	case ap.Port() == 1:
		return nil, unix.EINVAL
	}
	l := as.by[addr]
	switch {
	case l == nil:
		return nil, as.notHere(addr)
	case e.drains.all:
		return nil, errDrained
	}
	port := ap.Port()
	if port == 0 {
		if port = l.freePort(e.cfg.Rand, func(from uint16) (uint16, bool) {
			return e.cfg.Policy.NextPort(c.user.UID, c.user.GID, addr, from)
		}); port == 0 {
			return nil, as.noPort(c, addr)
		}
	} else if err := as.mayBind(c, addr, port); err != nil {
		return nil, err
	} else if e.clients.bound(l, port) != nil {
		return nil, unix.EADDRINUSE
	}
	if rcvbuf <= 0 {
		rcvbuf = shm.DefaultBuf
	}
	s := &socket{cl: c, local: l, port: port, inc: uint32(e.cfg.Rand()), receiving: receiving{limit: rcvbuf}}
	if s.inc == 0 {
		s.inc = 1
	}
	c.newSock(s)
	c.acct.sockets++
	l.ports.Set(port, s)
	e.watch.listSocket(s)
	return s, nil
}

// mostNamed is how many addresses the error for another one names.
const mostNamed = 8

// notHere is EADDRNOTAVAIL, naming the addresses that there are.
func (as *addresses) notHere(addr netip.Addr) error {
	all := lists.SortedFunc(maps.Keys(as.by), netip.Addr.Compare)
	more := ""
	if len(all) > mostNamed {
		all, more = all[:mostNamed], " and others"
	}
	return fmt.Errorf("%w: rdsd listens on %v%s, not on %v (listen in its configuration)", unix.EADDRNOTAVAIL, all, more, addr)
}

// fixLane says which lane s uses, once for all; false: it was fixed as another.
func (s *socket) fixLane(lane uint8) bool {
	if !s.laned {
		s.lane, s.laned = lane, true
	}
	return s.lane == lane
}

// mayBind asks the bind policy. EACCES, naming the rule.
func (as *addresses) mayBind(c *Client, addr netip.Addr, port uint16) error {
	if err := as.e.cfg.Policy.MayBind(c.user.UID, c.user.GID, addr, port); err != nil {
		return fmt.Errorf("%w: %w", unix.EACCES, err)
	}
	return nil
}

// noPort says why no port of addr is free for c.
func (as *addresses) noPort(c *Client, addr netip.Addr) error {
	if _, ok := as.e.cfg.Policy.NextPort(c.user.UID, c.user.GID, addr, firstPort); !ok {
		return as.mayBind(c, addr, firstPort)
	}
	return unix.EADDRINUSE
}

// freePort finds an unbound port that may allows: from a random place upward,
// skipping 0 and 1 (net/rds/bind.c rds_add_bound). may returns the lowest port
// from one on that it allows. 0 = none.
func (l *localAddr) freePort(rnd func() uint64, may func(from uint16) (uint16, bool)) uint16 {
	start := max(uint16(rnd()), firstPort)
	if p := l.freeBetween(start, math.MaxUint16, may); p != 0 {
		return p
	}
	return l.freeBetween(firstPort, start-1, may)
}

func (l *localAddr) freeBetween(p, end uint16, may func(from uint16) (uint16, bool)) uint16 {
	for p <= end {
		free, ok := l.ports.NextFree(p)
		if !ok || free > end {
			return 0
		}
		allowed, ok := may(free)
		switch {
		case !ok:
			return 0
		case allowed == free:
			return free
		}
		p = allowed
	}
	return 0
}

func anyPort(from uint16) (uint16, bool) { return from, true }

// newSock gives s a handle that nothing late of a closed socket names.
func (c *Client) newSock(s *socket) {
	if len(c.sockFree) == 0 {
		s.handle = shm.SockHandle(uint32(len(c.socks)), 0)
		c.socks = append(c.socks, s)
		return
	}
	s.handle = c.sockFree[0]
	c.sockFree = c.sockFree[1:]
	c.socks[shm.SockIndex(s.handle)] = s
}

// sock returns the live socket with a handle, or nil.
func (c *Client) sock(handle uint32) *socket {
	i := shm.SockIndex(handle)
	if i >= uint32(len(c.socks)) {
		return nil
	}
	s := c.socks[i]
	if s == nil || s.closed || s.handle != handle {
		return nil
	}
	return s
}

// dropSock takes s out of the table; its index may be used again.
func (c *Client) dropSock(s *socket) {
	c.socks[shm.SockIndex(s.handle)] = nil
	c.sockFree = append(c.sockFree, s.handle+shm.MaxSocks)
}
