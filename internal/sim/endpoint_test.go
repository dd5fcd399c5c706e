package sim

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
)

// endpoint is a bound socket from bind to close.
type endpoint struct {
	w         *world
	id        int
	h         *host
	c         *client
	s         *rds.Socket
	ap        netip.AddrPort
	open      bool
	stalled   int64 // reads nothing until then
	knows     []*region
	regions   []*region // its own, not released
	cells     []*cell   // in order of first use
	completed int
}

// portInfo is the history of an address and port.
type portInfo struct {
	bound   *endpoint
	gapFrom int64 // since when it is unbound, or the end of the last gap
}

// unboundSince reports whether there was a moment since t with nobody bound.
func (w *world) unboundSince(ap netip.AddrPort, t int64) bool {
	p := w.ports[ap]
	return p == nil || p.bound == nil || p.gapFrom >= t
}

// bind makes an endpoint; port 0 takes a port of the host's range.
func (c *client) bind(port uint16) *endpoint {
	w := c.h.w
	for p := uint16(100); port == 0; p++ {
		ap := netip.AddrPortFrom(c.h.addr, p)
		if i := w.ports[ap]; i == nil || i.bound == nil {
			port = p
		}
	}
	ap := netip.AddrPortFrom(c.h.addr, port)
	s, err := c.c.Bind(ap)
	if !c.h.up || c.gone {
		return nil
	}
	must(err)
	e := &endpoint{w: w, id: w.nextEp, h: c.h, c: c, s: s, ap: ap, open: true}
	w.nextEp++
	must(s.SetSndBuf(w.opt.sndBuf))
	must(s.SetRcvBuf(w.opt.rcvBuf))
	i := w.ports[ap]
	if i == nil {
		i = &portInfo{}
		w.ports[ap] = i
	}
	i.bound, i.gapFrom = e, w.now()
	w.eps = append(w.eps, e)
	c.eps = append(c.eps, e)
	w.log(c.h, "bind", int64(port), 0, 0)
	return e
}

// close closes the socket in order.
func (e *endpoint) close() {
	e.w.log(e.h, "close", int64(e.ap.Port()), 0, 0)
	for _, c := range e.cells {
		c.poll() // what the mark says now still counts
	}
	e.forgetWith(func() { must(e.s.Close()) })
}

// forget drops an endpoint whose process or daemon is gone.
func (e *endpoint) forget() { e.forgetWith(func() {}) }

func (e *endpoint) forgetWith(end func()) {
	w := e.w
	e.open = false
	for _, r := range e.regions {
		r.ended = true
	}
	p := w.ports[e.ap]
	p.bound, p.gapFrom = nil, w.now()
	w.eps = without(w.eps, e)
	e.c.eps = without(e.c.eps, e)
	end()
	p.gapFrom = w.now()
}

func without[T comparable](s []T, x T) []T {
	for i := range s {
		if s[i] == x {
			return append(s[:i:i], s[i+1:]...)
		}
	}
	return s
}

// poll takes what there is and checks it.
func (e *endpoint) poll() {
	for _, c := range e.cells {
		c.poll()
	}
	e.settle()
	w := e.w
	if e.stalled > w.now() && !w.over {
		return
	}
	for range 32 {
		m := rds.Message{Payload: w.scratch, DontWait: true}
		err := e.s.RecvMsg(&m)
		if errors.Is(err, rds.ErrWouldBlock) {
			break
		}
		if err != nil {
			broken("harness", "receive: %v", err)
		}
		e.received(&m)
	}
	for {
		n := e.s.Notices(w.notices)
		for i := range n {
			e.noticed(&w.notices[i])
		}
		if n < len(w.notices) {
			break
		}
	}
}

// flow is what one socket sends to one destination.
type flow struct {
	src       *endpoint
	dst       netip.AddrPort
	start     int64
	met       int // as op.met
	msgs      []*message
	last      int // index of the last one delivered, -1
	delivered int
	lost      uint64
	nosock    uint64
	cancelled bool
}

type flowKey struct {
	src int
	dst netip.AddrPort
}

// message is an accepted datagram.
type message struct {
	id        uint64
	flow      *flow
	idx       int
	n         int
	delivered bool
	op        *op
	tells     *region // the receiver learns of it
	met       int     // as op.met
	at        int64
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
	x := id*0x9e3779b97f4a7c15 | 1
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], id)
	for n := copy(b, word[:]); n < len(b); {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		n += copy(b[n:], word[:])
	}
}

func same(b []byte, id uint64) bool {
	x := id*0x9e3779b97f4a7c15 | 1
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], id)
	k := min(8, len(b))
	if string(b[:k]) != string(word[:k]) {
		return false
	}
	for n := k; n < len(b); {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		k := min(8, len(b)-n)
		if string(b[n:n+k]) != string(word[:k]) {
			return false
		}
		n += k
	}
	return true
}

// idLen is the shortest payload that tells which message it is.
const idLen = 4

// pair is two addresses, whichever sockets are bound there.
type pair struct{ src, dst netip.AddrPort }

// length makes n a length by which the message can be told from others on
// their way between these addresses: short ones are all of one flow and
// without an operation, or there is one, with an operation whose status comes.
func (f *flow) length(n int, o *op) int {
	if n >= idLen || n == 0 && o != nil && o.flags.Silent {
		return n
	}
	k := pair{f.src.ap, f.dst}
	all := f.src.w.short[k]
	pending := all[:0]
	alone := true
	for _, x := range all {
		if x.delivered || x.op != nil && (x.op.flags.Silent || x.op.fate != nil && never(x.op.fate.Status)) {
			continue
		}
		pending = append(pending, x)
		alone = alone && o == nil && x.op == nil && x.flow == f
	}
	f.src.w.short[k] = pending
	if !alone {
		return idLen
	}
	return n
}

// send submits one datagram; what is accepted is in the ledger from now on.
func (e *endpoint) send(dst netip.AddrPort, n int, m rds.Message, o *op, tells *region) *message {
	w := e.w
	id := uint64(len(w.msgs) + 1)
	f := e.flow(dst)
	n = f.length(n, o)
	if tells != nil {
		n = max(n, idLen)
	}
	if o != nil && (n > 0 || m.Cookie != 0) {
		o.flags.Silent = false // it says so, and is not: there is something to deliver
	}
	if o != nil && n < idLen {
		m.Op.Notify, o.flags.Notify = true, true
	}
	fill(w.scratch[:n], id)
	m.Payload, m.Addr, m.DontWait = w.scratch[:n], dst, true
	opID, err := e.s.SendMsg(&m)
	e.h.kick()
	w.sendErr = err
	switch {
	case err == nil:
	case errors.Is(err, rds.ErrWouldBlock), errors.Is(err, rds.ErrCongested), errors.Is(err, rds.ErrCompletionsFull),
		errors.Is(err, rds.ErrTooManyDestinations):
		return nil
	case errors.Is(err, rds.ErrMessageTooLong) && n > w.opt.sndBuf:
		return nil
	default:
		broken("harness", "send: %v", err)
	}
	x := &message{id: id, flow: f, idx: len(f.msgs), n: n, op: o, tells: tells, met: e.h.met[dst.Addr()], at: w.now()}
	f.msgs = append(f.msgs, x)
	w.msgs = append(w.msgs, x)
	if n < idLen {
		k := pair{e.ap, dst}
		w.short[k] = append(w.short[k], x)
	}
	kind := "send"
	if o != nil {
		o.issued(x, opID)
		kind = "send+op"
	}
	if o != nil {
		w.log(e.h, kind, int64(id), int64(o.token), int64(o.r.id))
		return x
	}
	w.log(e.h, kind, int64(id), int64(dst.Port()), int64(n))
	return x
}

// received checks a delivered datagram: content, order, once.
func (e *endpoint) received(m *rds.Message) {
	w := e.w
	if m.Truncated {
		broken("content", "message of %d bytes from %v", m.Len, m.Addr)
	}
	b := m.Payload[:m.N]
	x := w.find(b, m.Addr, e.ap)
	if x == nil {
		broken("exactly once", "%d bytes from %v to %v were not sent, or came before", m.N, m.Addr, e.ap)
	}
	f := x.flow
	switch {
	case f.dst != e.ap || f.src.ap != m.Addr:
		broken("routing", "message %d from %v to %v came to %v as from %v", x.id, f.src.ap, f.dst, e.ap, m.Addr)
	case x.delivered:
		broken("exactly once", "message %d from %v to %v came twice", x.id, f.src.ap, e.ap)
	case x.idx <= f.last:
		broken("order", "message %d (%d of its flow) from %v to %v after %d", x.id, x.idx, f.src.ap, e.ap, f.last)
	case x.n != m.N || !same(b, x.id):
		broken("content", "message %d from %v to %v: %d bytes sent, %d came, or they differ", x.id, f.src.ap, e.ap, x.n, m.N)
	}
	x.delivered = true
	f.last = x.idx
	f.delivered++
	w.log(e.h, "recv", int64(x.id), int64(e.ap.Port()), int64(x.n))
	if x.op != nil {
		x.op.arrived()
	}
	if m.Cookie != 0 || x.tells != nil {
		e.learn(x, m.Cookie)
	}
}

// find identifies a message: by its id, or, too short for one, as the next of
// its looks.
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
		if f.src.open {
			f.src.settle() // what it has been told by now is not on its way
		}
		for _, x := range f.msgs[f.last+1:] {
			if x.op != nil && x.op.fate != nil && never(x.op.fate.Status) {
				continue
			}
			if x.n == len(b) && same(b, x.id) && (x.op == nil || !x.op.flags.Silent) {
				return x
			}
		}
	}
	return nil
}

// noticed counts what a socket is told.
func (e *endpoint) noticed(n *rds.Notice) {
	e.w.log(e.h, "notice", int64(n.Kind), int64(n.To.Port()), int64(n.Count))
	switch n.Kind {
	case rds.Lost:
		e.flow(n.To).lost += n.Count
	case rds.NoSocket:
		e.flow(n.To).nosock += n.Count
	}
}
