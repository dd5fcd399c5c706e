package rds

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

const (
	// inlineCopy: payloads up to this are copied under the send lock; a larger
	// one would keep other senders out for microseconds.
	inlineCopy = 8 << 10

	noID = ^uint32(0)
)

// Why a message was not submitted just now. The first three are ErrWouldBlock
// to a caller that does not wait.
var (
	errFull     = errors.New("send buffer full")
	errNoMemory = errors.New("no message id or send memory free")
	errRingFull = errors.New("submission ring full")
	errOpening  = errors.New("destination not open yet")
	errCopy     = errors.New("memory set aside, copy the payload")
)

// outMsg is a message on its way into the ring.
type outMsg struct {
	p  []byte
	to netip.AddrPort
	x  *Message // what is more than payload, nil: nothing; its ids are set when submitted

	// Set when ids and memory have been set aside.
	id      uint32 // noID before
	dest    *dest
	dst     []byte
	copied  bool
	epoch   uint64
	windows int // arena windows when it was found exhausted
}

// send queues m. It waits as the socket's deadline and ctx say, unless dontWait is set. tx.mu is
// held, and released inside.
func (s *Socket) send(ctx context.Context, m *outMsg, dontWait bool) error {
	c, t := s.c, &s.c.tx
	m.id = noID
	var w *waiter
	for ; ; t.mu.Lock() {
		err := t.submit(s, m, w != nil)
		for !t.commitRun() { // the next run is not visible before it is committed
			if err = t.submit(s, m, w != nil); err != nil {
				break
			}
		}
		t.unlock()
		if err == errCopy {
			copy(m.dst, m.p)
			m.copied = true
			c.pins.Done()
			continue
		}
		if err == nil || !waitable(err) {
			s.endWait(&w)
			return s.sendError(m, err)
		}
		if err = s.sendWait(ctx, m, err, &w, dontWait); err != nil {
			s.endWait(&w)
			if m.id != noID {
				t.abandon(m)
			}
			return s.sendError(m, err)
		}
	}
}

func waitable(err error) bool {
	if err == errFull || err == ErrCongested || err == errNoMemory || err == errRingFull || err == errOpening {
		return true
	}
	_, is := err.(*outage)
	return is
}

// endWait ends a registration as waiter and reports whether the waiter had been
// woken.
func (s *Socket) endWait(w **waiter) (woken bool) {
	if *w != nil {
		woken = s.c.wait.leave(*w)
		*w = nil
	}
	return woken
}

// sendError returns err in the form for the caller.
func (s *Socket) sendError(m *outMsg, err error) error {
	switch err {
	case nil:
		return nil
	case errSendWouldBlock, errSendCongested, errSendDeadline:
		return err
	case ErrClosed:
		return errSendClosed
	}
	return opErr("send", m.to, err)
}

// submit puts m into the ring without publishing it. After an error that can be
// waited for, m keeps what was set aside for it. arm says that the caller is
// registered as a waiter and wants congestion relief announced. mu is held.
func (t *tx) submit(s *Socket, m *outMsg, arm bool) error {
	if s.closed.Load() {
		t.drop(m)
		return ErrClosed
	}
	if m.id != noID && m.epoch != t.epoch {
		m.id, m.copied = noID, false // what was set aside was at another daemon
	}
	if err := s.state(); err != nil {
		if t.drop(m); waitable(err) && s.wdl.expired.Load() {
			return errSendDeadline
		}
		m.copied = false
		return err
	}
	if s.wdl.expired.Load() {
		t.drop(m)
		return errSendDeadline
	}
	if m.inRun() {
		return t.append(s, m, arm)
	}
	if m.id != noID && m.x.freed() { // while the ring was full
		t.drop(m)
		return invalid("its buffer was freed")
	}
	if m.id == noID {
		if err := t.prepare(s, m, arm); err != nil {
			return err
		}
		if !m.copied && len(m.p) > 0 {
			if len(m.p) > inlineCopy {
				t.c.pins.Add(1)
				return errCopy
			}
			copy(m.dst, m.p)
		}
	}
	if !t.sub.FreeAtLeast(maxMsgEntries) {
		m.copied = true
		return errRingFull
	}
	t.commit(s, m)
	return nil
}

// toward checks m and finds its destination, which may take messages. mu is held.
func (t *tx) toward(s *Socket, m *outMsg, arm bool) (*dest, error) {
	if m.to.Addr().Is4In6() {
		m.to = normal(m.to)
	}
	n := len(m.p)
	if m.x != nil {
		if m.x.From.Buf != nil {
			n = max(n, m.x.From.Len)
		}
		if n <= s.sndbuf && n <= MaxMessage {
			if err := t.checkExtras(s, m.x); err != nil {
				return nil, err
			}
		}
	}
	if n > s.sndbuf || n > MaxMessage {
		return nil, tooLong("%d bytes; the socket's send buffer has room for %d (SetSndBuf), and a message has at most %d", n, s.sndbuf, MaxMessage)
	}
	d, err := t.dest(s, m.to)
	if err != nil {
		return nil, err
	}
	if m.x != nil && m.x.Cookie != 0 && !t.unknown(d) {
		if err := d.takesCookie(); err != nil {
			return nil, err
		}
	}
	if err = t.hinders(s, d); err == nil {
		return d, nil
	}
	if err == ErrCongested && arm {
		t.c.seg.WantSlot(d.slot).SetRelief()
		if err = t.hinders(s, d); err == nil {
			return d, nil
		}
	}
	return nil, err
}

// hinders returns why d takes no message now, or nil. mu is held.
func (t *tx) hinders(s *Socket, d *dest) error {
	if t.unknown(d) {
		return errOpening
	}
	if d.shared.LoadUnreachable() != 0 {
		if err := t.unreachable(s, d); err != nil {
			return err
		}
	}
	if d.look() {
		return ErrCongested
	}
	return nil
}

// prepare checks m and sets aside what it needs: destination slot, id, memory,
// its charge. mu is held.
func (t *tx) prepare(s *Socket, m *outMsg, arm bool) error {
	d, err := t.toward(s, m, arm)
	if err != nil {
		return err
	}
	if t.sends++; t.sends >= reapEvery || !s.room() || len(t.free) == 0 || t.idsOver(d) {
		t.reap()
		switch {
		case s.full(arm):
			return errFull
		case len(t.free) == 0:
			return t.starve(m)
		case t.idsOver(d):
			return t.refuse(d)
		}
	}
	return t.setAside(s, m, d)
}

// starve notes that ids or memory ran out.
func (t *tx) starve(m *outMsg) error {
	t.starved = true
	m.windows = t.arena.Windows()
	if len(t.free) == 0 || t.full {
		m.windows = -1 // more memory would not help, or is not to be had
	}
	return errNoMemory
}

// setAside takes an id and memory for m and charges its payload.
func (t *tx) setAside(s *Socket, m *outMsg, d *dest) error {
	n, size, opSize := len(m.p), len(m.p)+m.x.tail(), 0
	if m.x != nil {
		opSize = m.x.opMemory()
	}
	if size+opSize > 0 && t.memOver(d) {
		switch t.reap(); {
		case !t.memOver(d):
		case t.full:
			return t.refuse(d)
		default:
			return t.starve(m)
		}
	}
	var chunk, opMem uint32
	var ok bool
	before := t.arena.InUse()
	if size > 0 {
		if chunk, ok = t.alloc(size, &before); !ok {
			return t.starve(m)
		}
	}
	if opSize > 0 {
		if opMem, ok = t.alloc(opSize, &before); !ok {
			if size > 0 {
				t.arena.Free(chunk, size)
			}
			return t.starve(m)
		}
	}
	id := t.takeID(d)
	x := &t.msgs[id] // zero, see giveBack
	x.sock, x.dest, x.chunk, x.size = s, d, chunk, uint32(size)
	x.opMem, x.opSize, x.mem = opMem, uint32(opSize), uint32(t.arena.InUse()-before)
	d.mem += int(x.mem)
	m.id, m.dest, m.epoch = id, d, t.epoch
	if size > 0 {
		m.dst = t.arena.Bytes(chunk, size)
	}
	if size > n {
		m.x.putTail(m.dst[n:])
	}
	if opSize > 0 {
		m.x.putOpMemory(t.arena.Bytes(opMem, opSize))
	}
	if m.x != nil && m.x.From.Buf != nil {
		n = m.x.From.Len
	}
	x.sum = frames.Sum{Datagrams: 1, NonEmpty: min(n, 1), Bytes: n}
	d.charge(x.sum)
	return nil
}

// alloc takes arena memory. If there is none, it takes in returned messages and
// tries again. used is how much was in use before the message; it falls when
// messages are returned.
func (t *tx) alloc(n int, used *int) (uint32, bool) {
	chunk, ok := t.arena.Alloc(n)
	if !ok {
		now := t.arena.InUse()
		if t.reap() {
			*used -= now - t.arena.InUse()
			chunk, ok = t.arena.Alloc(n)
		}
	}
	return chunk, ok
}

// commit writes m's descriptors. mu is held and the ring has room for
// maxMsgEntries.
//
// It ends the destination's run. prepare could not do so: another sender may have opened
// a run since, while m's payload was copied or the ring was full.
func (t *tx) commit(s *Socket, m *outMsg) {
	m.dest.endRun()
	x := &t.msgs[m.id]
	x.sent = true
	sub := t.sub.Reserve().Sub()
	*sub = shm.Sub{}
	sub.Kind, sub.Sock, sub.Slot, sub.MsgID = shm.KindSend, s.handle, m.dest.slot, m.id
	sub.Chunk, sub.Len = x.chunk, uint32(x.sum.Bytes)
	if s.halfFull() {
		sub.Flags = shm.SubAckNow
	}
	if m.x != nil {
		t.commitExtras(s, m, x, sub)
	}
	m.id = noID
}

// drop gives back what m had set aside. mu is held.
func (t *tx) drop(m *outMsg) {
	if m.id == noID {
		return
	}
	if m.epoch != t.epoch {
		m.id = noID
		return
	}
	t.retire(m.id)
	t.gained()
	m.id = noID
}

func (t *tx) abandon(m *outMsg) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(m)
}
