package engine

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
)

// Messages that find no room at their client wait in daemon memory, in order, until the
// client has made room. Users share this memory so that none can take all of it with
// processes that do not read: a user gets more only while it would then have no more than
// is free. One user alone gets half, a second one half of the rest, and a user with nothing
// gets something. A window belongs to one user at a time, so that no user is refused
// because another uses pieces of many windows.

// overCost is what a message in overflow costs besides its payload: without it
// empty messages would cost nothing, and be without number.
const overCost = 256

// overflow is the daemon's memory for messages that found no room at their client.
type overflow struct {
	mem      []byte
	free     []*shm.Arena        // windows of it that nobody has
	used     int                 // bytes in use
	released bool                // some came free in this turn
	short    lists.List[account] // users with sockets that refused for want of it
}

// open makes windows of mem: one more than the limit says, for what does not fit
// together.
func (o *overflow) open(mem []byte) {
	o.mem = mem
	for i := 0; i < len(mem); i += shm.WindowSize {
		w := shm.NewArena()
		w.AddWindow(mem[i:][:shm.WindowSize:shm.WindowSize])
		o.free = append(o.free, w)
	}
}

// newOver takes daemon memory for a message to s, nil when there is none. If
// all is free a message gets it whatever its length.
func (rx *receiver) newOver(s *socket, a *arrival) *rxMsg {
	e := rx.e
	acc, cost := s.cl.acct, a.n+overCost
	if rx.overflow.used > 0 && acc.overBytes+cost > e.cfg.OverflowBytes-rx.overflow.used {
		return nil
	}
	var over *shm.Arena
	var chunk uint32
	if a.n > 0 {
		if over, chunk = rx.takeOver(acc, a.n, len(acc.windows)); over == nil {
			return nil
		}
	}
	m := e.pools.rxs.Get()
	*m = rxMsg{arrival: *a, sock: s, chunk: chunk, inOver: true, over: over, began: e.arrived()}
	rx.countMemory(acc, cost)
	return m
}

// countMemory counts n bytes more or fewer of daemon memory that acc has.
func (rx *receiver) countMemory(acc *account, n int) {
	acc.overBytes += n
	rx.overflow.used += n
}

// takeOver finds n bytes in the windows of acc, or in one more, as long as at least spare others are free.
func (rx *receiver) takeOver(acc *account, n, spare int) (*shm.Arena, uint32) {
	for _, w := range acc.windows {
		if chunk, ok := w.Alloc(n); ok {
			return w, chunk
		}
	}
	last := len(rx.overflow.free) - 1
	if last < spare {
		return nil, 0
	}
	w := rx.overflow.free[last]
	chunk, ok := w.Alloc(n)
	if !ok {
		return nil, 0
	}
	rx.overflow.free = rx.overflow.free[:last]
	acc.windows = append(acc.windows, w)
	return w, chunk
}

// freeOver gives the daemon memory of m back.
func (rx *receiver) freeOver(m *rxMsg) {
	acc := m.sock.cl.acct
	if m.n > 0 {
		m.over.Free(m.chunk, m.n)
		if m.over.InUse() == 0 {
			acc.windows = remove(acc.windows, m.over)
			rx.overflow.free = append(rx.overflow.free, m.over)
		}
	}
	rx.countMemory(acc, -m.n-overCost)
	rx.overflow.released = true
}

// refuseForMemory marks a socket that had to refuse only because its user may
// have no more of the daemon's memory: its senders wait for its congestion bit
// to clear, which no reader of the socket may bring about.
func (rx *receiver) refuseForMemory(s *socket) {
	rx.setCongested(s, true)
	rx.awaitMemory(s)
}

// awaitMemory has s, which refused for want of memory, tried again when there is some.
func (rx *receiver) awaitMemory(s *socket) {
	acc := s.cl.acct
	if !s.forMemory.On() {
		acc.refused.Add(&s.forMemory, s)
	}
	if !acc.inShort.On() {
		rx.overflow.short.Add(&acc.inShort, acc)
	}
}

// noMemory is the verdict on a message that found no memory. From a kernel it is
// lost, so its socket ends.
func (rx *receiver) noMemory(s *socket, a *arrival) conn.Verdict {
	if a.must {
		rx.overrun(s, netip.AddrFrom16(*a.src).Unmap())
		return conn.NoSocket
	}
	rx.refuseForMemory(s)
	return conn.Refused
}

// overrun takes s off its port: the kernel at from sent more than there is memory
// for, and it cannot be told to send it again. The owner learns of it behind what s
// has received so far. Holding the kernel's connection back instead would stop all
// sockets of both hosts for one that is not read.
func (rx *receiver) overrun(s *socket, from netip.Addr) {
	e := rx.e
	if s.overrun {
		return
	}
	s.overrun = true
	e.cfg.Trace(Place{Local: s.local.addr, Remote: from}, fmt.Sprintf("socket at port %d closed: its owner does not read what this peer, a kernel, sends", s.port), nil)
	rx.leavePort(s)
	e.clients.forgetPartials(s)
	e.loop.rouse(s) // their next try finds no socket, or the port's next one
	rx.pendSock(s)
}

// leavePort frees the port of s, for good.
func (rx *receiver) leavePort(s *socket) {
	s.local.ports.Set(s.port, nil)
	rx.e.watch.lists.dropSocket(s)
	rx.setCongested(s, false)
	s.left = true
	s.cl.acct.refused.Del(&s.forMemory)
}

// tellOverrun writes the event of a socket that was overrun; false: no room.
func (rx *receiver) tellOverrun(s *socket) bool {
	if !s.cl.mayPut() {
		return false
	}
	r := s.cl.ev.Reserve()
	*r.Notice() = shm.EventNotice{Kind: shm.EvOverrun, Sock: s.handle, Port: s.port, Addr: s.local.addr16}
	rx.e.clients.news(s.cl)
	return true
}

// memoryFreed lets sockets that refused for memory take messages again, once a
// turn, those of the users that have less than half of what they may have.
func (rx *receiver) memoryFreed() {
	e := rx.e
	if !rx.overflow.released {
		return
	}
	rx.overflow.released = false
	var next *lists.Link[account]
	for n := rx.overflow.short.Head; n != nil; n = next {
		next = n.Next
		acc := n.Of
		if 2*acc.overBytes >= e.cfg.OverflowBytes-rx.overflow.used || len(acc.windows)+len(rx.overflow.free) == 0 {
			continue
		}
		if e.chores.Besides(func() bool {
			if acc.refused.N == 0 {
				return false
			}
			s := acc.refused.Head.Of
			acc.refused.Del(&s.forMemory)
			rx.relieve(s)
			return true
		}) {
			rx.overflow.released = true // on in the next turn
			continue
		}
		rx.overflow.short.Del(n)
	}
}

// queueOver puts a message at the end of its socket's overflow queue.
func (rx *receiver) queueOver(m *rxMsg) {
	s := m.sock
	s.countOver(m, 1)
	if s.over.Add(&m.waits, m); s.over.N == 1 { // else it is known to wait
		rx.pendSock(s)
	}
}

// popOver takes the first message out of that queue.
func (s *socket) popOver() *rxMsg {
	m := s.over.Pop()
	s.countOver(m, -1)
	return m
}

// countOver adds m to what waits at s, or with a sign of -1 takes it out.
func (s *socket) countOver(m *rxMsg, sign int) {
	s.overSum += sign * m.sum.Datagrams
	s.overBytes += sign * m.sum.Bytes
	s.overHeads += sign * (m.n - m.sum.Bytes)
}

// mem is where m is; nil if it has no bytes.
func (m *rxMsg) mem() []byte {
	arena := m.over
	if !m.inOver {
		arena = m.sock.cl.recv
	}
	if m.n == 0 {
		return nil
	}
	return arena.Bytes(m.chunk, m.n)
}

// pendSock has what waits at s tried again.
func (rx *receiver) pendSock(s *socket) {
	c := s.cl
	if !s.pend.On() {
		c.pendSocks.Add(&s.pend, s)
	}
	c.untried = c.pendSocks.N
	rx.e.clients.pend(c)
}

// freeRx gives back the memory of a message that never reached the event ring.
func (rx *receiver) freeRx(m *rxMsg) {
	e := rx.e
	if m.inOver {
		rx.freeOver(m)
	} else if c := m.sock.cl; !c.dead {
		e.clients.freeRxID(c, m.rxid)
	}
	*m = rxMsg{}
	e.pools.rxs.Put(m)
}

// writeSockets moves waiting messages to c, from one socket after the other, and
// returns what that cost. A socket that has its share waits for the receive ids
// of what it has, and is not looked at until then; one that has nothing stays
// and is tried whenever an id came back.
func (rx *receiver) writeSockets(c *Client) (n int) {
	for tries := 0; tries < writeEach && n < writeEach && c.untried > 0 && c.pendSocks.N > 0; tries++ {
		s := c.pendSocks.Head.Of
		cost, all := rx.writeOver(s, writeSock)
		n += cost
		if !all && c.full {
			return n // still its turn
		}
		c.pendSocks.Del(&s.pend)
		switch {
		case all:
			c.untried--
		case cost >= writeSock:
			c.pendSocks.Add(&s.pend, s)
			c.untried = c.pendSocks.N
		default:
			if c.untried--; s.rxTold == 0 {
				c.pendSocks.Add(&s.pend, s)
			}
		}
	}
	return n
}

// writeOver moves waiting messages of s to its client while they cost less than
// budget, and returns what they cost; all: none waits any more.
func (rx *receiver) writeOver(s *socket, budget int) (cost int, all bool) {
	for s.over.N > 0 {
		n := s.over.Head.Of.n
		if cost >= budget || !rx.moveOver(s) {
			return cost, false
		}
		cost += 1 + n/writeUnit
	}
	return cost, !s.overrun || rx.tellOverrun(s)
}

// moveOver moves the first message that waits at s to its client; false: there
// is no room for it.
func (rx *receiver) moveOver(s *socket) bool {
	c, m := s.cl, s.over.Head.Of
	if !c.mayPut() {
		return false
	}
	if !m.inOver {
		s.popOver()
		rx.putEvent(s, &m.arrival, m.rxid, m.chunk)
		*m = rxMsg{}
		rx.e.pools.rxs.Put(m)
		return true
	}
	id, chunk, ok := c.takeRx(s, m.n, s.rxTold == 0)
	if !ok {
		return false
	}
	if m.n > 0 {
		copy(c.recv.Bytes(chunk, m.n), m.mem())
	}
	s.popOver()
	rx.putEvent(s, &m.arrival, id, chunk)
	rx.freeRx(m)
	return true
}
