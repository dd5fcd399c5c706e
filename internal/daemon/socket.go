package daemon

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// socket is one bound RDS socket. Engine-owned.
type socket struct {
	cl     *client
	idx    uint32 // the client's socket index
	local  *local
	port   uint16
	inc    uint32 // incarnation: tells this socket from the port's next owner
	closed bool

	closing bool   // CloseSock waits until the submission ring
	closeAt uint64 // has been taken to here

	limit     int // receive buffer, payload bytes
	rcvBytes  int // delivered or waiting, not yet taken by the application
	congested bool
	forMemory bool                 // refused because daemon memory was full; in Engine.forMemory
	over      queue[rxMsg, *rxMsg] // arrived, no room at the client yet
	inPend    bool                 // in cl.pendSocks
	waiters   []*slot              // local slots stopped because this socket refused

	regions []*region
	slots   []*slot // its open destinations

	sndMsgs  int // submitted and not yet returned
	sndBytes int
	ops      int // operations not yet settled

	ping func(now int64) // a daemon-owned port that waits for a pong
}

// bind makes a socket for c. Errors are errnos: EADDRNOTAVAIL, EADDRINUSE,
// EINVAL.
func (e *Engine) bind(c *client, ap netip.AddrPort, rcvbuf int) (*socket, error) {
	addr := ap.Addr().Unmap()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return nil, unix.EINVAL
	case ap.Port() == 1:
		return nil, unix.EINVAL
	}
	l := e.locals[addr]
	if l == nil {
		return nil, unix.EADDRNOTAVAIL
	}
	port := ap.Port()
	if port == 0 {
		if port = l.freePort(e.cfg.Rand); port == 0 {
			return nil, unix.EADDRINUSE
		}
	} else if l.ports.get(port) != nil {
		return nil, unix.EADDRINUSE
	}
	if rcvbuf <= 0 {
		rcvbuf = defaultRcvBuf
	}
	s := &socket{cl: c, local: l, port: port, limit: rcvbuf, inc: uint32(e.cfg.Rand())}
	if s.inc == 0 {
		s.inc = 1
	}
	s.idx = c.newSock(s)
	l.ports.set(port, s)
	return s, nil
}

// freePort finds an unbound port: from a random place upward, skipping 0 and 1
// (net/rds/bind.c rds_add_bound). 0 = none.
func (l *local) freePort(rnd func() uint64) uint16 {
	start := uint16(rnd())
	for i := 0; i < 1<<16; i++ {
		p := start + uint16(i)
		if p >= firstPort && l.ports.get(p) == nil {
			return p
		}
	}
	return 0
}

func (c *client) newSock(s *socket) uint32 {
	if n := len(c.sockFree); n > 0 {
		i := c.sockFree[n-1]
		c.sockFree = c.sockFree[:n-1]
		c.socks[i] = s
		return i
	}
	c.socks = append(c.socks, s)
	return uint32(len(c.socks) - 1)
}

// closeSocket frees the port at once. Unsent messages are withdrawn, those on
// the wire may or may not arrive, and nothing is told to anybody
// (net/rds/af_rds.c rds_release).
func (e *Engine) closeSocket(s *socket) {
	if s.closed {
		return
	}
	s.closed = true
	s.local.ports.set(s.port, nil)
	e.setCongested(s, false)
	c := s.cl
	for m := s.over.pop(); m != nil; m = s.over.pop() {
		e.freeRx(m)
	}
	for _, p := range e.peersV {
		if p.partial != nil && p.partial.sock == s {
			m := p.partial
			p.partial = nil
			p.c.ForgetPartial(m)
			e.freeRx(m)
		}
		if s.sndMsgs > 0 {
			p.c.CancelMatching(func(m *connMsg) bool { t, ok := m.Owner.(*txMsg); return ok && t.sock == s }, cancelled)
			e.touch(p)
		}
	}
	for _, sl := range s.waiters {
		sl.waitOn = nil
		e.addJob(sl) // its next try finds no socket
	}
	s.waiters = nil
	for len(s.slots) > 0 {
		e.closeSlot(s.slots[len(s.slots)-1])
	}
	for len(s.regions) > 0 {
		e.releaseRegion(s.regions[0])
	}
	// Messages the application has not taken: their memory comes back with
	// the receive ids, whoever returns them.
	c.socks[s.idx] = nil
	c.sockFree = append(c.sockFree, s.idx)
}
