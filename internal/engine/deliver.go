package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/trace"
)

// receiver has what came for processes, until they have given it back. Engine-owned.
type receiver struct {
	e          *Engine
	overflow   overflow
	unfinished lists.List[rxMsg] // messages in assembly, by when they are looked at
	congNews   bool              // of a localAddr
	ends       bool              // the daemon is about to shut down, see Ends
	lost       bool              // since then something was dropped that its client was not told of
}

// rxMsg is an arrived message that is not yet in its client's event ring. It is being
// assembled, or waits for room, mostly in daemon memory. Pooled.
type rxMsg struct {
	arrival
	sock   *socket
	began  int64 // when its header arrived, by the engine's time
	chunk  uint32
	rxid   uint32
	inOver bool       // it waits in daemon memory, its payload at chunk of over
	over   *shm.Arena // nil: there is none

	waits   lists.Link[rxMsg] // socket.over
	from    *peer             // of one in assembly
	inSock  lists.Link[rxMsg] // of one in assembly: in socket.partials
	stall   lists.Link[rxMsg] // of one in assembly: in receiver.unfinished
	missing int               // bytes of it that had not come
	looked  int64             // at this time
}

// arrival is the header of an arriving message, from whichever path. It is written and read
// field by field. A copy in wider words would have to wait for all stores before it, to
// cache lines that another processor owns. Only a message that has to wait is copied.
type arrival struct {
	src    *[16]byte // address of the sending host
	sport  uint16
	srcInc uint32
	cookie uint64
	at     Wall              // when the engine had found it whole. 0: it is from this host, see stamp
	asm    uint32            // ns since the engine had found its header
	n      int               // bytes that it takes, its Traceparent among them
	tail   int               // of its Traceparent, 0: it has none
	parent *wire.Traceparent // where that is until putTail has put it behind the payload
	run    int               // datagrams that it is said to have, if it is a run, else 0
	sum    frames.Sum        // what it holds, once it is whole
	path   uint8             // on which it came
	traced trace.Set         // the traces that follow it
	seq    uint64            // if it is traced
	must   bool              // it must be taken: its sender takes nothing back
}

// holdsIn looks at what arrived, where it has been copied to, and notes what it holds.
// false: the frames are not what the sender said, see badRun. Only processes of the
// daemon's own user can write there. What a run is said to hold stays what was found here:
// nothing that follows depends on the frames.
func (a *arrival) holdsIn(mem []byte) (ok bool) {
	if a.run == 0 {
		a.sum = frames.Sum{Datagrams: 1, NonEmpty: min(a.payload(), 1), Bytes: a.payload()}
		return true
	}
	a.sum, ok = frames.Check(mem, a.run)
	return ok
}

// belongs notes that what arrives belongs to the trace p, if that is one. What leaves no room for
// p in the largest chunk is delivered without it. Few messages have one, so it is kept out of its callers.
//
//go:noinline
func (a *arrival) belongs(p *wire.Traceparent) {
	if a.n <= abi.MaxMessage-wire.TraceparentLen && p.Check() == nil {
		a.parent, a.tail, a.n = p, wire.TraceparentLen, a.n+wire.TraceparentLen
	}
}

// payload is how many bytes of a are payload, or the frames of a run.
func (a *arrival) payload() int { return a.n - a.tail }

// putTail writes the Traceparent behind the payload in mem, which has a.n bytes. Like belongs it is
// kept out of its callers.
//
//go:noinline
func (a *arrival) putTail(mem []byte) {
	copy(mem[a.payload():], a.parent[:])
	a.parent = nil
}

// badRun counts a run whose frames are not what its sender said. A process can change what
// it sends at any time, so its daemon and the connection are not to blame. Nobody gets any
// of it, and its sender is not told.
func (rx *receiver) badRun() conn.Verdict {
	rx.e.st.C[stats.RecvDropMalformed]++
	return conn.Accepted
}

// admit decides whether s takes n more bytes. A message for a socket over its
// receive buffer is still taken, into daemon memory, up to the hard cap; an
// empty socket takes any message, or a long one would never get in. A kernel
// cannot be refused: what it sends may take all that the socket's user has left
// of the daemon's memory, see overrun.
func (rx *receiver) admit(s *socket, n int, must bool) conn.Verdict {
	if has := s.buffered(); has > 0 && has+n > s.limit+rx.e.cfg.HardCap && !must {
		rx.setCongested(s, true)
		return conn.Refused
	}
	return conn.Accepted
}

// deliver hands a whole message to s.
func (rx *receiver) deliver(s *socket, a *arrival, payload []byte) conn.Verdict {
	e := rx.e
	if v := rx.admit(s, a.n, a.must); v != conn.Accepted {
		return v
	}
	c := s.cl
	// Order: nothing overtakes what already waits.
	if s.over.N == 0 && c.room() {
		if id, chunk, ok := c.takeRx(s, a.n, s.rxTold == 0); ok {
			var mem []byte
			if a.n > 0 {
				mem = c.recv.Bytes(chunk, a.n)
				copy(mem, payload)
			}
			if a.parent != nil {
				a.putTail(mem)
			}
			if !a.holdsIn(mem) {
				e.clients.freeRxID(c, id)
				return rx.badRun()
			}
			rx.putEvent(s, a, id, chunk)
			rx.charge(s, a.sum)
			return conn.Accepted
		}
	}
	if a.at == 0 {
		e.looks()
		rx.stamp(c)
		a.at = e.wallAt(e.arrived())
	}
	m := rx.newOver(s, a)
	if m == nil {
		return rx.noMemory(s, a)
	}
	copy(m.mem(), payload)
	if m.parent != nil {
		m.putTail(m.mem())
	}
	if !a.holdsIn(m.mem()) {
		rx.freeRx(m)
		return rx.badRun()
	}
	m.sum = a.sum
	rx.queueOver(m)
	rx.charge(s, a.sum)
	return conn.Accepted
}

// putEvent writes the event of a message that is in the client's arena. The
// caller has seen room.
func (rx *receiver) putEvent(s *socket, a *arrival, rxid, chunk uint32) {
	e := rx.e
	ev := s.cl.ev.Reserve().Event()
	*ev = shm.Event{}
	ev.Kind, ev.DstPort, ev.Sock, ev.RxID = shm.EvData, s.port, s.handle, rxid
	ev.Chunk, ev.Len = chunk, uint32(a.payload())
	if a.tail > 0 {
		ev.Flags = shm.EventTraceparent
	}
	ev.SrcInc, ev.SrcAddr, ev.SrcPort = a.srcInc, *a.src, a.sport
	ev.Cookie, ev.RecvTime, ev.Assembly = a.cookie, int64(a.at), a.asm
	at := a.at
	if at == 0 {
		at, s.cl.unstamped = e.wall, true
	}
	r := &s.cl.rx[rxid]
	if a.run != 0 {
		ev.Flags, r.run, r.steps = shm.EventRun, a.run, shm.RunSteps-1
	}
	s.rxTold++
	r.told, r.src, r.sport, r.at, r.sum, r.traced, r.path = true, a.src, a.sport, at.ms(), a.sum, a.traced, a.path
	if a.traced != 0 {
		r.seq = a.seq
		e.traces.rx(s, a, trace.Delivered)
	}
	e.st.C[stats.RecvQueued] += uint64(a.sum.Datagrams)
	e.st.C[stats.RecvBytes] += uint64(a.sum.Bytes)
	e.st.C[stats.CopyToUser] += uint64(a.sum.Bytes)
	e.clients.news(s.cl)
}

// stamp gives the messages from this host that c is not notified of yet their time. That of a run has to
// lie behind the moment at which the engine took it, because its process may append until then.
func (rx *receiver) stamp(c *Client) {
	if !c.unstamped {
		return
	}
	c.unstamped = false
	at := int64(rx.e.wallAt(rx.e.arrived()))
	for i := range c.ev.Unpublished() {
		if ev := c.ev.Reserved(i).Event(); ev.Kind == shm.EvData && ev.RecvTime == 0 {
			ev.RecvTime = at
		}
	}
}

// charge accounts what arrived to s and tells the peers when it fills up.
func (rx *receiver) charge(s *socket, sum frames.Sum) {
	s.rcvBytes += sum.Bytes
	s.rcvMsgs += sum.NonEmpty
	s.got.add(&sum)
	rx.e.st.C[stats.RecvBytesAddedToSock] += uint64(sum.Bytes)
	rx.checkFull(s)
}

// checkFull tells the peers if s is full.
func (rx *receiver) checkFull(s *socket) {
	if s.buffered() > s.limit || s.rcvMsgs > shm.MaxMsgs(s.limit) {
		rx.setCongested(s, true)
	}
}

// buffered is what counts against the receive buffer and the hard cap: payload not
// yet taken by the application, and the records of what waits in overflow with all that
// they hold.
func (s *socket) buffered() int { return s.rcvBytes + s.overHeads + s.over.N*overCost }

// uncharge takes back what charge has accounted of messages that were read, or dropped
// with their socket.
func (rx *receiver) uncharge(s *socket, sum frames.Sum) {
	e := rx.e
	e.st.C[stats.RecvDelivered] += uint64(sum.Datagrams)
	if s.closed {
		return
	}
	s.rcvBytes -= sum.Bytes
	s.rcvMsgs -= sum.NonEmpty
	e.st.C[stats.RecvBytesFreedFromSock] += uint64(sum.Bytes)
	rx.relieve(s)
}

// relieve lets those who wait for room at s go on, if there is some.
func (rx *receiver) relieve(s *socket) {
	has := s.buffered()
	if s.congested && (has < s.limit/2 || has == 0) && s.rcvMsgs <= shm.MaxMsgs(s.limit)/2 {
		rx.setCongested(s, false)
	}
	if s.waiters.N > 0 && has < s.limit {
		rx.e.loop.rouse(s)
	}
}

// returnRx handles an entry of the receive-return ring: a receive id that comes back,
// because the message has been copied out by the application or dropped with its socket,
// or the word that another part of a run was copied out. false: no correct client
// returns that.
func (rx *receiver) returnRx(c *Client, entry uint32) bool {
	e := rx.e
	id := entry &^ shm.RxStep
	if id >= uint32(len(c.rx)) || !c.rx[id].told {
		return false
	}
	r := &c.rx[id]
	s, sum := r.sock, r.sum
	if entry != id {
		if r.steps == 0 {
			return false
		}
		sum = r.step()
	} else {
		if r.traced != 0 {
			e.traces.read(r)
		}
		e.clients.freeRxID(c, id)
	}
	rx.uncharge(s, sum)
	return true
}

// step takes from what r still holds the part that goes with one more step.
func (r *rxEntry) step() frames.Sum {
	n := r.steps + 1
	part := frames.Sum{Datagrams: r.sum.Datagrams / n, NonEmpty: r.sum.NonEmpty / n, Bytes: r.sum.Bytes / n}
	r.steps--
	r.sum = r.sum.Minus(part)
	return part
}

// Deliver is the connection's up-call for a whole message.
func (u *qpHost) Deliver(c *conn.Conn, h *wire.Header, payload []byte) (v conn.Verdict, met uint32) {
	v, met, took := u.e.rx.deliverFrom(u.p, h, payload, c.Traceparent(h))
	if took > 0 {
		c.TookRun(took)
	}
	return v, met
}

// deliverFrom delivers a whole message; met is the incarnation of the socket that
// accepted it, and took how many bytes of payload if it is a run.
func (rx *receiver) deliverFrom(p *peer, h *wire.Header, payload []byte, parent *wire.Traceparent) (v conn.Verdict, met uint32, took int) {
	e := rx.e
	s := e.dests.meant(p.local, h.DPort, h.DstInc)
	if s == nil {
		if e.traces.On {
			e.traces.nobody(p, h)
		}
		return conn.NoSocket, 0, 0
	}
	if s.ping != nil {
		if h.SPort == 0 {
			s.ping(e.now)
		}
		return conn.Accepted, 0, 0
	}
	var a arrival
	a.set(p, h)
	if parent != nil {
		a.belongs(parent)
	}
	var x wire.Exts
	if a.run == 0 {
		x = h.Exts()
	}
	a.cookie = x.Dest
	if e.traces.On {
		e.traces.arrived(p, s, h, &a, &x, e.traces.stamp())
	}
	if v = rx.deliver(s, &a, payload); v == conn.Refused && a.traced != 0 {
		e.traces.rx(s, &a, trace.Refused)
	}
	if v == conn.Accepted {
		rx.used(p, s, &x)
	}
	if v == conn.Accepted && a.run != 0 {
		took = a.sum.Bytes
	}
	return v, s.inc, took
}

// set fills in what a header from p says.
func (a *arrival) set(p *peer, h *wire.Header) {
	a.src, a.sport, a.srcInc, a.n, a.path = &p.addr16, h.SPort, h.SrcInc, int(h.Len), p.path
	a.run, _ = h.Run()
	a.must = !p.c.profile().takesBack
	a.at = p.c.e.wallAt(p.c.e.arrived())
}

// used ends the keys of the operations that a message which s has accepted chases,
// if they were for one use: before the application can read the message
// (net/rds/rdma.c rds_rdma_unuse).
func (rx *receiver) used(p *peer, s *socket, x *wire.Exts) {
	if !p.c.profile().rdma {
		return // operations have no way there
	}
	for _, rkey := range x.RDMAKeys[:x.RDMA] {
		rx.e.keys.usedKey(p.addr, p.who, s, rkey)
	}
}
