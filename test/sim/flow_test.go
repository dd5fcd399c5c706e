package sim

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
)

// flow is all that one socket sends to one destination.
type flow struct {
	src       *endpoint
	dst       netip.AddrPort
	start     int64
	met       int // as in op
	msgs      []*message
	last      int // index of the last message delivered, -1 for none
	delivered int
	limited   int // messages with a limit and without an operation

	lost, nosock, gaveUp, ups, downs uint64 // by the notices of the socket
	notGranted                       uint64

	cancelled bool
	lingered  bool // the socket closed when all of it was acknowledged

	taker   *endpoint // socket that got the last message delivered
	heard   bool      // the sender must have learnt that taker got that message
	changes uint64    // changes of taker that the sender had to be told of
}

type flowKey struct {
	src int
	dst netip.AddrPort
}

// message is a datagram that the library accepted.
type message struct {
	id        uint64
	flow      *flow
	idx       int
	n         int
	delivered bool
	silent    bool
	ops       []*op
	tells     *region // region that the receiver learns of
	once      bool    // it carries the cookie of a region for one use, so it is not sent if another host has the grant
	met       int     // as in op
	at        int64
	limit     int64 // ns it may wait, 0 means for ever
	asks      bool  // for its status, which has come if fate is not nil
	forgotten bool  // that it asks: the sender's daemon was replaced by an older one
	fate      *rds.Completion
	untraced  bool // its traceparent may be lost: a daemon was replaced by an older one
}

// expired reports whether the message's limit has passed.
func (m *message) expired() bool { return m.limit > 0 && m.flow.src.w.now() >= m.at+m.limit }

// refused reports whether a status says that the message was not delivered and never will be.
func (m *message) refused() bool {
	for _, o := range m.ops {
		if o.fate != nil && never(o.fate.Status) {
			return true
		}
	}
	return m.fate != nil && never(m.fate.Status)
}

// unposted reports whether o's status says that it never ran. One whose message found no socket may have.
func (o *op) unposted() bool {
	return o.fate != nil && o.fate.Status == rds.RemoteError && o.fate.Errno != 0
}

// unposted reports whether a status says that the message's operations never ran.
func (m *message) unposted() bool {
	for _, o := range m.ops {
		if o.unposted() {
			return true
		}
	}
	return false
}

func (e *endpoint) flow(dst netip.AddrPort) *flow {
	w := e.w
	k := flowKey{e.id, dst}
	f := w.flows[k]
	if f == nil {
		f = &flow{src: e, dst: dst, start: w.now(), last: -1, met: e.h.met[dst.Addr()]}
		w.flows[k] = f
		w.flowsV = append(w.flowsV, f)
	}
	return f
}

// fill writes the payload of message id.
func fill(b []byte, id uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], id)
	copy(b[copy(b, word[:]):], content(id, max(len(b)-8, 0)))
}

func same(b []byte, id uint64) bool {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], id)
	k := min(8, len(b))
	return string(b[:k]) == string(word[:k]) && differ(b[k:], content(id, len(b)-k)) < 0
}

// idLen is the shortest payload that identifies its message.
const idLen = 4

// pair is a source and a destination address, whichever sockets are bound there.
type pair struct{ src, dst netip.AddrPort }

// length returns n, or a longer length if the receiver could not tell a message of n bytes from
// others in progress between these addresses. A short message needs no other beside it, unless
// all are of one flow and without operations.
func (f *flow) length(n int, ops []*op, limited bool) int {
	if n >= idLen || n == 0 && len(ops) > 0 && allSilent(ops) {
		return n // it is not delivered, so nobody has to identify it
	}
	if f.byTCP() && f.src.w.opt.crash+int(f.src.w.opt.hookRate) > 0 { // it may come again, see flow.begins
		return max(n, idLen)
	}
	k := pair{f.src.ap, f.dst}
	all := f.src.w.short[k]
	pending := all[:0]
	alone := !limited // a message that is given up may still arrive
	for _, x := range all {
		if x.delivered || x.silent || x.refused() {
			continue
		}
		pending = append(pending, x)
		alone = alone && len(ops) == 0 && len(x.ops) == 0 && x.flow == f
	}
	f.src.w.short[k] = pending
	if !alone {
		return idLen
	}
	return n
}

// extra is what a datagram carries besides its payload.
type extra struct {
	ops    []*op
	tells  *region    // region that the receiver learns of
	cookie rds.Cookie // sent in the message
	limit  time.Duration
	from   bool // the payload stays in registered memory
	zc     bool // the message brings back a zero-copy cookie
}

// send submits one datagram. If the library accepts it, the ledger has it from now on.
func (e *endpoint) send(dst netip.AddrPort, n int, x extra) *message {
	w := e.w
	id := uint64(len(w.msgs) + 1)
	f := e.flow(dst)
	n = f.length(n, x.ops, x.limit > 0)
	if x.tells != nil {
		n = max(n, idLen)
	}
	m := rds.Message{Addr: dst, Cookie: x.cookie, GiveUpAfter: x.limit}
	var z *zero
	if x.zc || x.from {
		if z = e.zero(n, x.from); z != nil && z.mem != nil {
			fill(z.bytes(), id)
			m.From = rds.Segment{Buf: z.mem.buf, Off: z.off, Len: n}
		}
		if z != nil {
			m.ZeroCopy, m.ZeroCopyCookie = true, z.cookie
		}
	}
	if m.From.Buf == nil {
		fill(w.scratch[:n], id)
		m.Payload = w.scratch[:n]
	}
	if len(x.ops) > 0 && n < idLen {
		x.ops[0].flags.Notify = true // its status says whether the message may still arrive
	}
	for _, o := range x.ops {
		o.describe(&m)
	}
	if asks(id, &x) {
		m.Notify, m.Token = true, ofMessage|id
	}
	m.Traceparent = traceOf(id)
	if e.monitored {
		e.takeRelief()
	}
	e.c.room(len(x.ops))
	call := w.tick()
	_, err := e.s.Send(rds.DontWait, &m)
	e.h.kick()
	w.sendErr = err
	switch {
	case err == nil:
	case errors.Is(err, rds.ErrCongested):
		e.failedAt(dst)
		return nil
	case errors.Is(err, rds.ErrWouldBlock), errors.Is(err, rds.ErrCompletionsFull), errors.Is(err, rds.ErrTooManyDestinations):
		return nil
	case errors.Is(err, rds.ErrMessageTooLong) && n > w.opt.sndBuf:
		return nil
	case x.cookie != 0 && f.byTCP() && errors.Is(err, syscall.EOPNOTSUPP):
		w.saw("TCP: cookie refused")
		return nil
	default:
		broken("harness", "send: %v", err)
	}
	return e.accepted(f, n, &x, &m, z, call)
}

// accepted enters a message that was sent into the ledger.
func (e *endpoint) accepted(f *flow, n int, x *extra, m *rds.Message, z *zero, call int64) *message {
	w := e.w
	if e.h.pausing.still {
		w.saw("submitted to a halted daemon")
	}
	s := w.newMessage()
	*s = message{id: uint64(len(w.msgs) + 1), flow: f, idx: len(f.msgs), n: n, tells: x.tells, once: x.cookie != 0 && x.tells != nil && e.mayBeRefused(x.tells, f.dst), met: e.h.met[f.dst.Addr()], at: w.now(),
		asks: m.Notify, limit: int64(x.limit), silent: n == 0 && len(x.ops) > 0 && allSilent(x.ops)}
	f.msgs = append(f.msgs, s)
	w.msgs = append(w.msgs, s)
	if n < idLen {
		k := pair{e.ap, f.dst}
		w.short[k] = append(w.short[k], s)
	}
	if z != nil {
		e.lent(z, s)
	}
	if len(x.ops) == 0 {
		if s.limit > 0 {
			f.limited++
		}
		w.log(e.h, "send", int64(s.id), int64(f.dst.Port()), int64(n))
		return s
	}
	s.ops = x.ops
	for _, o := range x.ops {
		id := m.OpID
		if o.a != nil {
			id = m.AtomicID
		}
		o.issued(s, id, call)
		w.log(e.h, "send+op", int64(s.id), int64(o.token), int64(o.r.id))
	}
	return s
}

// newMessage returns a new message from a slab.
func (w *world) newMessage() *message {
	if len(w.slab) == 0 {
		w.slab = make([]message, 512)
	}
	m := &w.slab[0]
	w.slab = w.slab[1:]
	return m
}

// received checks a delivered datagram: its content, its order, and that it came once.
func (e *endpoint) received(m *rds.Received) {
	w := e.w
	if m.N < m.Len {
		broken("content", "message of %d bytes from %v", m.Len, m.Addr)
	}
	b := m.Payload[:m.N]
	x := w.find(b, m.Addr, e.ap)
	if x == nil {
		broken("exactly once", "%d bytes from %v to %v were not sent, or came before", m.N, m.Addr, e.ap)
	}
	f := x.flow
	f.begins(e)
	switch {
	case f.dst != e.ap || f.src.ap != m.Addr:
		broken("routing", "message %d from %v to %v came to %v as from %v", x.id, f.src.ap, f.dst, e.ap, m.Addr)
	case x.delivered:
		broken("exactly once", "message %d from %v to %v came twice", x.id, f.src.ap, e.ap)
	case x.idx <= f.last:
		broken("order", "message %d (%d of its flow) from %v to %v after %d", x.id, x.idx, f.src.ap, e.ap, f.last)
	case x.n != m.N || !same(b, x.id):
		broken("content", "message %d from %v to %v: %d bytes sent, %d came, or they differ", x.id, f.src.ap, e.ap, x.n, m.N)
	case x.fate != nil && never(x.fate.Status):
		broken("status", "message %d came after its status %v", x.id, x.fate.Status)
	case x.silent:
		broken("silent", "message %d, whose operations are silent, was delivered", x.id)
	}
	x.traced(m)
	x.takenBy(e)
	x.delivered = true
	f.last = x.idx
	f.delivered++
	w.log(e.h, "recv", int64(x.id), int64(e.ap.Port()), int64(x.n))
	for _, o := range x.ops {
		o.arrived()
	}
	if m.Cookie != 0 || x.tells != nil {
		e.learn(x, m.Cookie)
	}
}

// find identifies a message by its id. One too short for an id is the next of its flow with this
// content.
func (w *world) find(b []byte, from, to netip.AddrPort) *message {
	if len(b) >= idLen {
		var word [8]byte
		copy(word[:], b)
		id := binary.LittleEndian.Uint64(word[:])
		if id == 0 || id > uint64(len(w.msgs)) {
			return nil
		}
		return w.msgs[id-1]
	}
	for _, f := range w.flowsV {
		if f.src.ap != from || f.dst != to {
			continue
		}
		if f.src.open && !f.src.busy {
			f.src.settle() // so that messages with a final status are not found
		}
		for _, x := range f.msgs[f.last+1:] {
			if !x.refused() && !x.silent && x.n == len(b) && same(b, x.id) {
				return x
			}
		}
	}
	return nil
}
