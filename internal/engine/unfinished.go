package engine

import (
	"errors"
	"math"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// A message in fragments takes all of its memory with the first fragment. So a peer that
// begins messages and does not finish them would take memory for nothing. Three rules bound
// that. Unfinished messages take at most half of a client's receive arena; beyond that they
// take daemon memory, which is charged to the client's user. The unfinished messages of one
// peer host, over all its lanes, take at most a quarter of the free daemon memory, or are
// one message. If no fragment of a message arrives for unfinishedNs, the connection ends,
// and the peer sends the message again.

const unfinishedNs = 30_000_000_000

var errUnfinished = errors.New("the peer began a message and sent nothing of it for 30 s")

// mayBegin reports whether p may have one more unfinished message, of n bytes,
// and whether it may be in c's receive arena. A Linux kernel cannot be refused.
func (rx *receiver) mayBegin(p *peer, c *Client, n int) (may, inArena bool) {
	h := p.remote
	may = h.unfinished == 0 || 4*(h.unfinished+n) <= rx.e.cfg.OverflowBytes-rx.overflow.used || !p.c.profile().takesBack
	return may, c.unfinished+n <= c.recv.Windows()*shm.WindowSize/2
}

// Begin finds memory for a message that arrives in pieces.
func (u *qpHost) Begin(c *conn.Conn, h *wire.Header) ([]byte, any, conn.Verdict) {
	return u.e.rx.beginFrom(u.p, h, c.Traceparent(h))
}

func (rx *receiver) beginFrom(p *peer, h *wire.Header, parent *wire.Traceparent) ([]byte, any, conn.Verdict) {
	e := rx.e
	s := e.dests.meant(p.local, h.DPort, h.DstInc)
	if s == nil || s.ping != nil {
		return nil, nil, conn.NoSocket
	}
	var a arrival
	a.set(p, h)
	if parent != nil {
		a.belongs(parent)
	}
	if v := rx.admit(s, a.n, a.must); v != conn.Accepted {
		return nil, nil, v
	}
	cl := s.cl
	may, inArena := rx.mayBegin(p, cl, a.n)
	if !may { // its port is not congested: it sends it again when it has finished others
		return nil, nil, conn.Refused
	}
	if inArena && s.over.N == 0 {
		if id, chunk, ok := cl.takeRx(s, a.n, s.rxIDs == 0); ok {
			m := e.pools.rxs.Get()
			*m = rxMsg{arrival: a, sock: s, chunk: chunk, rxid: id, began: e.arrived()}
			cl.rx[id].tail = a.tail
			rx.beginPartial(p, m)
			return m.mem(), m, conn.Accepted
		}
	}
	m := rx.newOver(s, &a)
	if m == nil {
		return nil, nil, rx.noMemory(s, &a)
	}
	rx.beginPartial(p, m)
	return m.mem(), m, conn.Accepted
}

func (rx *receiver) beginPartial(p *peer, m *rxMsg) {
	e := rx.e
	if m.parent != nil {
		m.putTail(m.mem())
	}
	p.partials++
	m.sock.partials.Add(&m.inSock, m)
	p.unfinished += m.n
	if !m.inOver {
		m.sock.cl.unfinished += m.n
	}
	m.from, m.missing, m.looked = p, m.payload(), e.now
	rx.unfinished.Add(&m.stall, m)
	e.due.by(e.now + unfinishedNs)
}

func (rx *receiver) endPartial(p *peer, m *rxMsg) {
	m.sock.partials.Del(&m.inSock)
	p.partials--
	p.unfinished -= m.n
	if !m.inOver {
		m.sock.cl.unfinished -= m.n
	}
	rx.unfinished.Del(&m.stall)
}

// endStalled breaks the connections off whose unfinished messages do not go on.
// A peer that is read slowly, for its rate, has longer.
func (rx *receiver) endStalled() {
	e := rx.e
	e.chores.Besides(func() bool {
		if rx.unfinished.N == 0 {
			return false
		}
		m := rx.unfinished.Head.Of
		if m.looked+unfinishedNs > e.now {
			return false
		}
		rx.unfinished.Del(&m.stall)
		if left := m.from.c.Missing(m); left < m.missing || m.from.ration.held {
			m.missing, m.looked = left, e.now
			rx.unfinished.Add(&m.stall, m)
			return true
		}
		m.from.c.Reset(e.now, errUnfinished)
		return true
	})
	if rx.unfinished.N > 0 {
		e.due.by(rx.unfinished.Head.Of.looked + unfinishedNs) // past: on in the next turn
	}
}

// Commit delivers an assembled message.
func (u *qpHost) Commit(c *conn.Conn, h *wire.Header, token any) (met uint32) {
	met, took := u.e.rx.commitFrom(u.p, h, token)
	if took > 0 {
		c.TookRun(took)
	}
	return met
}

// commitFrom returns what deliverFrom does of a message that was accepted.
func (rx *receiver) commitFrom(p *peer, h *wire.Header, token any) (met uint32, took int) {
	e := rx.e
	m := token.(*rxMsg)
	rx.endPartial(p, m)
	s := m.sock
	a := &m.arrival
	if !a.holdsIn(m.mem()) {
		rx.freeRx(m)
		rx.badRun()
		return s.inc, 0
	}
	if a.run != 0 {
		took = a.sum.Bytes
	}
	var x wire.Exts
	if a.run == 0 {
		x = h.Exts()
	}
	a.cookie = x.Dest
	if e.traces.On {
		e.traces.arrived(p, s, h, a, &x, e.wallAt(m.began))
	}
	rx.used(p, s, &x)
	rx.charge(s, a.sum)
	at := e.arrived()
	a.at, a.asm = e.wallAt(at), uint32(min(at-m.began, math.MaxUint32))
	if m.inOver {
		rx.queueOver(m)
		return s.inc, took
	}
	// It has its memory. What is in overflow by now came over other connections
	// since it began, and may have to wait for memory: it goes ahead of that.
	if !s.cl.room() {
		s.countOver(m, 1)
		s.over.AddFront(&m.waits, m)
		rx.pendSock(s)
		return s.inc, took
	}
	rx.putEvent(s, a, m.rxid, m.chunk)
	*m = rxMsg{}
	e.pools.rxs.Put(m)
	return s.inc, took
}

// Abort drops a half-assembled message; it will come again.
func (u *qpHost) Abort(_ *conn.Conn, token any) { u.e.rx.abortFrom(u.p, token) }

func (rx *receiver) abortFrom(p *peer, token any) {
	m := token.(*rxMsg)
	rx.endPartial(p, m)
	rx.freeRx(m)
}
