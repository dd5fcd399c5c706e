package engine

import (
	"errors"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/shm"
)

// handOverArrived has the messages go over that clients have and have not given back, and those
// that wait in overflow. The payload of the latter is part of the state: it is no more than
// Config.OverflowBytes, and the state as a whole travels in a memory file.
func (x *crossing) handOverArrived() {
	s := x.s
	for _, c := range x.procs.All {
		if x.handOverRxs(c); s.Err() != nil {
			return
		}
	}
	for _, so := range x.socks.All {
		x.part(so.cl)
		if each(x, elements(&so.over), mostMsgs, 16+2+4+8+8+8+4+8+24+1, func(m *rxMsg) { x.handOverOver(so, m) }); s.Err() != nil {
			return
		}
	}
	for _, c := range x.procs.All {
		for i := range c.rx {
			if r := &c.rx[i]; r.sock != nil && !r.told && !x.used[r] {
				x.part(c)
				s.Fail("client %d has a message that nobody tells it of", c.session)
				return
			}
		}
	}
}

// handOverRxs has the messages in c's receive arena go over.
func (x *crossing) handOverRxs(c *Client) {
	s, id := x.s, uint32(0)
	x.part(c)
	have := len(c.rx) - len(c.rxFree)
	for i := range c.rx {
		if x.flattens(c.rx[i].tail) && !c.rx[i].told {
			have--
		}
	}
	for range s.Count(have, len(c.rx), 4+4+4+4+1) {
		for !s.Reads() && (c.rx[id].sock == nil || x.flattens(c.rx[id].tail) && !c.rx[id].told) {
			id++
		}
		if x.handOverRx(c, id); s.Err() != nil {
			return
		}
		id++
	}
	if !s.Reads() {
		return
	}
	c.recv.Retaken()
	c.rxFree = c.rxFree[:0]
	for id := len(c.rx) - 1; id >= 0; id-- {
		if c.rx[id].sock == nil {
			c.rxFree = append(c.rxFree, uint32(id))
		}
	}
}

// flattens reports whether an arrived message with a Traceparent of tail bytes goes over without it,
// because an older daemon would take the Traceparent for payload.
func (x *crossing) flattens(tail int) bool {
	return tail > 0 && !x.s.Reads() && x.s.Version() < 6
}

// ErrTraced says that there is no room to hand messages with Traceparents over without them.
var ErrTraced = errors.New("more messages of traces wait unread than the other daemon, which knows no traces, has memory for: " +
	"read them first, or restart the daemon instead")

// roomToFlatten refuses to hand over if some messages are flattened, and the memory for messages that wait would not do for those up
// to m, with n bytes: in bytes, and in windows, of which each user needs some, and leaves a quarter unused by the lengths of its
// messages.
func (x *crossing) roomToFlatten(m *rxMsg, n int) {
	if x.s.Reads() || x.s.Version() >= 6 {
		return
	}
	if x.overOf == nil {
		x.overOf = map[*account]int{}
	}
	x.flattened = x.flattened || !m.inOver
	x.overBytes += n + overCost
	x.overOf[m.sock.cl.acct] += shm.ChunkSize(n)
	windows := 0
	for _, n := range x.overOf {
		windows += (n*4/3 + shm.WindowSize - 1) / shm.WindowSize
	}
	if have := x.cfg.OverflowBytes; x.flattened && (x.overBytes > have || windows > (have+shm.WindowSize-1)/shm.WindowSize+1) {
		x.part(nil)
		x.s.Refuse(ErrTraced)
	}
}

// handOverRx has a message in c's receive arena go over: with that id, if it is written.
func (x *crossing) handOverRx(c *Client, id uint32) {
	s, e := x.s, rxEntry{}
	if !s.Reads() {
		e = c.rx[id]
	}
	s.U32(&id)
	x.socks.Ref(s, &e.sock, "socket")
	s.U32(&e.chunk)
	s.U32(&e.n)
	s.Bool(&e.told)
	if s.Reads() && !x.adoptRx(c, id, &e) {
		return
	}
	if !e.told {
		return
	}
	x.handOverSource(&e.src)
	s.U16(&e.sport)
	s.U32(&e.at)
	s.Int(&e.run, frames.MaxLen)
	s.Int(&e.steps, shm.RunSteps-1)
	x.handOverSum(&e.sum)
	if !s.Reads() {
		return
	}
	if s.Err() == nil && (uint32(e.sum.Bytes) > e.n || e.run == 0 && e.steps > 0 || e.sum.Datagrams > max(e.run, 1)) {
		s.Fail("receive id %d of client %d has %d bytes in %d, a run of %d", id, c.session, e.sum.Bytes, e.n, e.run)
	}
	c.rx[id] = e
	if !e.sock.closed {
		e.sock.rcvBytes += e.sum.Bytes
		e.sock.rcvMsgs += e.sum.NonEmpty
	}
}

// adoptRx finds the place of a message in c's receive arena again. It returns false after an error.
func (x *crossing) adoptRx(c *Client, id uint32, e *rxEntry) bool {
	s := x.s
	if s.Err() != nil {
		return false
	}
	if id >= uint32(len(c.rx)) || c.rx[id].sock != nil || e.sock.cl != c || e.sock.closed && !e.told {
		s.Fail("receive id %d of client %d is none, or is used twice", id, c.session)
		return false
	}
	if e.n > 0 {
		if err := c.recv.Retake(e.chunk, int(e.n)); err != nil {
			s.Fail("%v", err)
			return false
		}
	}
	c.rx[id] = *e
	e.sock.rxIDs++
	e.sock.rxMem += shm.ChunkSize(int(e.n))
	if e.told {
		e.sock.rxTold++
	}
	return true
}

func (x *crossing) handOverSum(sum *frames.Sum) {
	x.s.Int(&sum.Datagrams, frames.MaxLen)
	x.s.Int(&sum.NonEmpty, frames.MaxLen)
	if x.s.Int(&sum.Bytes, abi.MaxMessage); sum.NonEmpty > sum.Datagrams {
		x.s.Fail("%d datagrams, of which %d are not empty", sum.Datagrams, sum.NonEmpty)
	}
}

// handOverOver has a message go over that waits at so.
func (x *crossing) handOverOver(so *socket, m *rxMsg) {
	s := x.s
	m.sock = so
	x.handOverSource(&m.src)
	s.U16(&m.sport)
	s.U32(&m.srcInc)
	s.U64(&m.cookie)
	s.I64(&m.began)
	s.I64((*int64)(&m.at))
	s.U32(&m.asm)
	s.Int(&m.run, frames.MaxLen)
	x.handOverSum(&m.sum)
	if s.Version() >= 6 {
		traced := m.tail > 0
		if s.Bool(&traced); traced {
			m.tail = wire.TraceparentLen
		}
	}
	var payload []byte
	inOver := m.inOver || x.flattens(m.tail)
	if s.Bool(&inOver); inOver {
		if !s.Reads() {
			payload = m.mem()
		}
		if x.flattens(m.tail) {
			payload = payload[:m.payload()]
		}
		x.roomToFlatten(m, len(payload))
		s.Blob(&payload, abi.MaxMessage)
	} else {
		s.U32(&m.rxid)
	}
	if !s.Reads() {
		return
	}
	if m.inOver = inOver; inOver {
		m = x.overAgain(m, payload)
	} else {
		m = x.inArenaAgain(m)
	}
	if s.Err() != nil {
		return
	}
	if so.closed || m.sum.Bytes > m.payload() || m.tail > 0 && m.run != 0 || m.sum.Datagrams != max(m.run, 1) {
		s.Fail("%d bytes in %d wait at a socket, a run of %d", m.sum.Bytes, m.n, m.run)
		return
	}
	so.rcvBytes += m.sum.Bytes
	so.rcvMsgs += m.sum.NonEmpty
	so.countOver(m, 1)
	so.over.Add(&m.waits, m)
}

// overAgain takes daemon memory for m as it had some. Windows are given out
// anew, so limits among users are those that the next message finds.
func (x *crossing) overAgain(m *rxMsg, payload []byte) *rxMsg {
	acc, o, n := m.sock.cl.acct, &x.rx.overflow, len(payload)
	m.n = n
	if cost := n + overCost; x.s.Err() == nil && o.used > 0 && o.used+cost > x.cfg.OverflowBytes {
		x.part(nil) // the settings may allow less
		x.s.Fail("%d bytes of overflow, at most %d are allowed", o.used+cost, x.cfg.OverflowBytes)
	}
	if x.s.Err() != nil {
		return m
	}
	if n > 0 {
		if m.over, m.chunk = x.rx.takeOver(acc, n, 0); m.over == nil {
			x.part(nil)
			x.s.Fail("the overflow's windows are full")
			return m
		}
	}
	x.rx.countMemory(acc, n+overCost)
	own := x.pools.rxs.Get()
	*own = *m
	copy(own.mem(), payload)
	return own
}

// inArenaAgain finds the message of a receive id that its client has not been told of.
func (x *crossing) inArenaAgain(m *rxMsg) *rxMsg {
	c, id := m.sock.cl, m.rxid
	if x.s.Err() == nil && (id >= uint32(len(c.rx)) || c.rx[id].sock != m.sock || c.rx[id].told || x.used[&c.rx[id]]) {
		x.s.Fail("receive id %d is none that waits, or is used twice", id)
	}
	if x.s.Err() != nil {
		return nil
	}
	e := &c.rx[id]
	x.used[e] = true
	m.n, m.chunk, e.tail = int(e.n), e.chunk, m.tail
	own := x.pools.rxs.Get()
	*own = *m
	return own
}
