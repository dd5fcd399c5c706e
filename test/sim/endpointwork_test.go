package sim

import (
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// target draws a destination: mostly a bound socket, sometimes a port that may be unbound.
func (e *endpoint) target() netip.AddrPort {
	w := e.w
	if w.rWork.IntN(40) == 0 {
		return netip.AddrPortFrom(pick(w.rWork, w.hosts...).addr, uint16(90+w.rWork.IntN(12)))
	}
	for {
		to := pick(w.rWork, w.eps...)
		if to.h == e.h && w.rWork.IntN(100) >= w.opt.localShare && w.otherHost(e.h) {
			continue
		}
		return to.ap
	}
}

// burst sends some datagrams to one destination.
func (e *endpoint) burst() {
	w := e.w
	to := e.target()
	for range 1 + w.rWork.IntN(max(w.opt.burst, 10)) {
		if e.send(to, w.size(), w.carry()) == nil {
			return
		}
	}
}

// offer registers memory and tells a socket about it.
func (e *endpoint) offer() {
	w := e.w
	access := pick(w.rOp, rds.AllowRead, rds.AllowWrite, rds.AllowRead|rds.AllowWrite, rds.AllowRead|rds.AllowWrite)
	n := 2 + w.rOp.IntN(pick(w.rOp, 100, 20_000, 60_000))
	if w.opt.big > 0 && w.rOp.IntN(10) == 0 {
		n = 400_000
	}
	if w.rOp.IntN(100) < w.opt.atomics {
		access, n = rds.AllowAtomic, 8*(1+w.rOp.IntN(6))
	}
	if w.rOp.IntN(8) == 0 {
		access |= rds.UseOnce
	}
	var r *region
	if len(e.regions) > 0 && w.rOp.IntN(3) == 0 {
		r = pick(w.rOp, e.regions...) // grant an existing region to one more socket
	} else if r = e.register(n, access); r == nil {
		return
	}
	to := e.target()
	if r.open || w.rOp.IntN(5) == 0 {
		if r.exposeToAll(); e.open {
			e.send(to, w.size(), extra{tells: r})
		}
		return
	}
	if w.rOp.IntN(3) == 0 {
		e.expose(r, to)
		return
	}
	r.offered[to] = true
	e.offersOnce(r, to)
	e.send(to, w.size(), extra{cookie: r.r.Cookie(), tells: r})
}

// releaseOne releases a region, whatever operations on it are in progress.
func (e *endpoint) releaseOne() {
	if len(e.regions) > 0 && e.w.depth == 0 {
		pick(e.w.rOp, e.regions...).release()
	}
}

// operate issues one operation or two on a region that the socket was told of. Sometimes the
// operation is one that must be refused.
func (e *endpoint) operate() {
	w := e.w
	bad := w.rOp.IntN(100) < w.opt.badShare
	var r *region
	switch {
	case bad && len(w.regions) > 0 && w.rOp.IntN(2) == 0:
		r = pick(w.rOp, w.regions...) // a region that the socket may have no grant for
	case len(e.knows) > 0:
		r = pick(w.rOp, e.knows...)
	default:
		e.burst()
		return
	}
	if r.words != nil && !bad && w.rOp.IntN(100) < w.opt.waits && r.e.h != e.h && r.e.open {
		e.addNow(r)
		return
	}
	if r.words != nil && r.e.open && w.rOp.IntN(4) == 0 {
		r.addHere()
	}
	e.operateOn(r, bad)
}

// operateOn issues such operations on r.
func (e *endpoint) operateOn(r *region, bad bool) {
	w := e.w
	x := w.carry()
	if x.ops = e.plan(r, bad); x.ops == nil {
		return
	}
	silent := w.rOp.IntN(6) == 0
	for _, o := range x.ops {
		o.flags = rds.RDMA{Notify: w.rOp.IntN(2) == 0, Report: w.rOp.IntN(3) == 0, Silent: silent || w.rOp.IntN(12) == 0}
	}
	n := 0
	if w.rOp.IntN(3) > 0 && !(silent && w.rOp.IntN(2) == 0) {
		n = w.size()
	}
	to := r.e.ap
	if bad && w.rOp.IntN(4) == 0 {
		to = e.target()
	}
	e.post(to, n, x)
}

// plan makes the operations of one message: one on r, and sometimes one of the other kind on
// another region of the same host. It returns nil if r has no room for another operation.
func (e *endpoint) plan(r *region, bad bool) []*op {
	w := e.w
	o := e.draw(r, bad)
	if o == nil {
		return nil
	}
	if w.rOp.IntN(100) >= w.opt.pairs {
		return []*op{o}
	}
	for _, q := range e.knows {
		if (q.words == nil) == (r.words == nil) || q.e.h != r.e.h {
			continue
		}
		p := e.draw(q, bad && w.rOp.IntN(2) == 0)
		if p == nil || (p.a == nil) == (o.a == nil) {
			break
		}
		p.token++
		if p.a == nil {
			o, p = p, o
			o.token, p.token = p.token, o.token
		}
		return []*op{o, p}
	}
	return []*op{o}
}

// draw makes an operation on r, or returns nil if r has no room for one.
func (e *endpoint) draw(r *region, bad bool) *op {
	w := e.w
	o := &op{w: w, token: uint64(len(w.ops) + 1), e: e, r: r, kind: abi.OpWrite}
	if r.words != nil && !(bad && w.rOp.IntN(8) == 0) {
		if o.a = r.draw(); o.a == nil {
			return nil
		}
		o.off, o.n = o.a.word.off, 8
		switch {
		case bad && w.rOp.IntN(6) == 0:
			o.off, o.refusable = o.off+1+w.rOp.IntN(7), syscall.EINVAL
		case bad && w.rOp.IntN(6) == 0:
			o.off, o.refusable = r.n+8*w.rOp.IntN(3), syscall.ERANGE
		}
		return o
	}
	if r.access&rds.AllowRead != 0 && (r.access&rds.AllowWrite == 0 || w.rOp.IntN(2) == 0) {
		o.kind = abi.OpRead
	}
	if bad && w.rOp.IntN(3) == 0 {
		o.kind = abi.OpRead + abi.OpWrite - o.kind
	}
	if !o.place(bad && w.rOp.IntN(3) == 0) {
		return nil
	}
	return o
}

// place chooses the bytes of the region that the operation uses. beyond makes them end outside
// the region.
func (o *op) place(beyond bool) bool {
	w, r := o.w, o.r
	limit := r.n/2 + 1
	if o.kind == abi.OpWrite {
		limit = r.n - r.next
	}
	if limit < 1 {
		return false
	}
	o.n = 1 + w.rOp.IntN(min(limit, pick(w.rOp, 16, 3000, 100_000, 1<<20)))
	if o.kind == abi.OpWrite {
		o.off = r.next
	} else {
		o.off = w.rOp.IntN(max(r.n/2-o.n, 0) + 1)
		o.n = min(o.n, max(r.n/2, 1))
	}
	if beyond {
		o.off = r.n - w.rOp.IntN(min(o.n, r.n)) // the last byte is outside
		if o.off+o.n <= r.n {
			o.off = r.n
		}
		o.refusable = syscall.ERANGE
	}
	return true
}

// post sends operations in a message of n bytes.
func (e *endpoint) post(to netip.AddrPort, n int, x extra) bool {
	for _, o := range x.ops {
		align := 1
		if o.a != nil {
			align = 8
		}
		if o.local, o.loff = e.c.carve(o.n, align); o.local == nil {
			return false
		}
		if o.writes() {
			copy(o.source(), o.data())
		} else {
			clear(o.source())
		}
	}
	if e.send(to, n, x) == nil {
		return false
	}
	for _, o := range x.ops {
		if o.writes() && o.fits() {
			o.r.next = o.off + o.n
		}
	}
	return true
}

// segments cuts the local memory into the segments of the operation.
func (o *op) segments() []rds.Segment {
	pieces := 1
	if o.w.rOp.IntN(4) == 0 {
		pieces = 1 + o.w.rOp.IntN(40)
	}
	var s []rds.Segment
	for at := 0; at < o.n; {
		k := o.n - at
		if len(s)+1 < pieces {
			k = 1 + o.w.rOp.IntN(k)
		}
		s = append(s, rds.Segment{Buf: o.local.buf, Off: o.loff + at, Len: k})
		at += k
	}
	return s
}
