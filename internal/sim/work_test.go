package sim

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/sim"
)

// What every seed does at least.
const (
	wantMessages = 2000
	wantOps      = 200
	wantBreaks   = 10
	maxActs      = 60_000
	enoughBreaks = 60 // after that no daemon and no process dies: the rest gets done
)

// run does the whole workload.
func (w *world) run() {
	w.net.Faults = w.opt.faults
	if w.opt.hookRate > 0 {
		w.net.Hook = w.hook
	}
	w.net.At(w.now(), w.act)
	for !w.over {
		if !w.step() {
			broken("harness", "the workload stopped")
		}
		w.bound()
	}
}

// hook crashes hosts at points of the provider.
func (w *world) hook(p sim.Point) sim.Action {
	if below(w.rHook, 1e6) >= int64(w.opt.hookRate) || w.breaks > enoughBreaks {
		return sim.Pass
	}
	return pick(w.rHook, sim.CrashRequester, sim.CrashResponder)
}

// act is one action of the workload; the next one follows.
func (w *world) act() {
	if w.over {
		return
	}
	if w.depth == 0 {
		w.acts++
		if w.acts > maxActs {
			broken("liveness", "%d messages, %d operations, %d breaks in %d actions", len(w.msgs), len(w.ops), w.breaks, w.acts)
		}
		w.doOne()
	}
	if w.depth == 0 && len(w.msgs) >= wantMessages && len(w.ops) >= wantOps && w.breaks >= wantBreaks {
		w.over = true
		return
	}
	gap := below(w.rWork, w.opt.gap)
	if w.rWork.IntN(100) == 0 {
		gap += below(w.rWork, 5_000_000)
	}
	if n := len(w.msgs); n != w.sent {
		w.sent, w.idle = n, 0
	} else if w.idle++; w.idle > 20 { // something takes its time
		gap += below(w.rWork, 20_000_000)
	}
	w.net.At(w.now()+gap, w.act)
}

func (w *world) doOne() {
	if len(w.eps) == 0 {
		return // every host is down
	}
	if w.disturb() {
		return
	}
	e := pick(w.rWork, w.eps...)
	if e.c.full { // it is never given back: time for another process
		h := e.h
		e.c.kill()
		h.attach()
		return
	}
	x := w.rWork.IntN(100)
	if len(w.msgs) > 4*wantMessages {
		x /= 3 // what is missing is operations
	}
	switch {
	case x < 5 || x >= 100-w.opt.offers:
		e.offer()
	case x < 7:
		e.releaseOne()
	case x < 7+w.opt.opShare:
		e.operate()
	default:
		e.burst()
	}
}

// disturb does one of the things that break something, or not.
func (w *world) disturb() bool {
	o := &w.opt
	x := w.rFault.IntN(1000)
	// When the load is done and not enough has broken, break.
	if len(w.msgs) >= wantMessages && len(w.ops) >= wantOps && x < 20 {
		x = 0
		if o.reset == 0 {
			x = w.rFault.IntN(o.crash + o.kill + o.rebind)
		}
	}
	took := func(share int) bool {
		if x < share {
			x = 1 << 20
			return true
		}
		x -= share
		return false
	}
	e := pick(w.rFault, w.eps...)
	switch {
	case took(o.reset):
		to := pick(w.rFault, w.hosts...)
		if o.lanes > 0 && w.rFault.IntN(2) == 0 {
			lane := pick(w.rFault, o.laneV[:o.lanes]...)
			w.log(e.h, "resetlane", int64(to.n), int64(lane), 0)
			engine.ResetLane(e.h.e, to.addr, lane)
		} else {
			w.log(e.h, "reset", int64(to.n), 0, 0)
			engine.ResetPeers(e.h.e, to.addr)
		}
		e.h.kick()
	case took(o.crash) && w.breaks <= enoughBreaks:
		e.h.crash()
	case took(o.kill) && w.breaks <= enoughBreaks:
		c := e.c
		h := c.h
		c.kill()
		h.attach()
	case took(o.rebind):
		w.rebind(e)
	case took(o.stall):
		if w.rFault.IntN(4) == 0 {
			must(e.s.SetRcvBuf(pick(w.rFault, 1, 3000, 200_000)))
			break
		}
		e.stalled = w.now() + below(w.rFault, pick[int64](w.rFault, 100_000, 5_000_000, 100_000_000))
		w.log(e.h, "stall", int64(e.ap.Port()), e.stalled-w.now(), 0)
		c := e.c
		w.net.At(e.stalled, func() { c.wake() })
	case took(o.hole):
		w.swallow(e.h.addr, pick(w.rFault, w.hosts...).addr)
	case took(o.cancel):
		if len(w.flowsV) == 0 {
			break
		}
		if f := pick(w.rFault, w.flowsV...); f.src.open {
			w.cancel(f)
		}
	default:
		return false
	}
	return true
}

// rebind closes a socket, perhaps when all it sent has been acknowledged, and
// binds another one.
func (w *world) rebind(e *endpoint) {
	w.breaks++
	port, c := e.ap.Port(), e.c
	// A socket that waits does not read, so it must not wait for itself.
	if w.rFault.IntN(100) < w.opt.linger && w.flows[flowKey{e.id, e.ap}] == nil {
		e.closeWait()
	} else {
		e.close()
	}
	if w.opt.successor && len(c.h.clients) > 1 { // another process takes the port
		c = c.h.clients[(slices.Index(c.h.clients, c)+1)%len(c.h.clients)]
	}
	if c.gone || !c.h.up {
		return
	}
	if i := w.ports[netip.AddrPortFrom(c.h.addr, port)]; w.rFault.IntN(3) > 0 && i.bound == nil {
		c.bind(port)
	} else {
		c.bind(0)
	}
}

func (w *world) cancel(f *flow) {
	w.log(f.src.h, "cancel", int64(f.src.ap.Port()), int64(f.dst.Port()), 0)
	f.cancelled = true
	for _, m := range f.msgs {
		for _, o := range m.ops {
			o.cancelled = true
		}
	}
	must(f.src.s.CancelSentTo(f.dst))
	f.src.h.kick()
}

// size draws a payload size.
func (w *world) size() int {
	r := w.rSize
	n := 0
	switch x := r.IntN(1000); {
	case x < w.opt.big:
		n = r.IntN(1<<20 + 1)
	case x < 50:
		n = 0
	case x < 700+w.opt.small*10:
		n = r.IntN(300)
	case x < 950+w.opt.small:
		n = r.IntN(4000)
	default:
		n = r.IntN(40000)
	}
	return min(n, w.opt.sndBuf)
}

// carry draws what a datagram carries besides payload and operations.
func (w *world) carry() (x extra) {
	r, o := w.rWork, &w.opt
	if o.giveUp > 0 && r.IntN(100) < o.giveUp {
		x.limit = time.Duration(1+r.IntN(pick(r, 2, 20, 2000))) * time.Millisecond
	}
	if o.zero > 0 && r.IntN(100) < o.zero {
		x.zc = true
		x.from = r.IntN(2) == 0
	}
	return x
}

// target draws a destination: mostly a bound socket, sometimes nobody's port.
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

func (w *world) otherHost(h *host) bool {
	for _, e := range w.eps {
		if e.h != h {
			return true
		}
	}
	return false
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

// offer registers memory and lets somebody know.
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
		r = pick(w.rOp, e.regions...) // one more grantee
	} else if r = e.register(n, access); r == nil {
		return
	}
	to := e.target()
	if w.rOp.IntN(3) == 0 {
		e.expose(r, to)
		return
	}
	r.offered[to] = true
	e.offersOnce(r)
	e.send(to, w.size(), extra{cookie: r.r.Cookie(), tells: r})
}

// releaseOne takes a region back, used or not, whatever is in flight.
func (e *endpoint) releaseOne() {
	if len(e.regions) > 0 && e.w.depth == 0 {
		pick(e.w.rOp, e.regions...).release()
	}
}

// operate issues an operation on a region somebody told of, or two at once;
// sometimes one that must be refused.
func (e *endpoint) operate() {
	w := e.w
	bad := w.rOp.IntN(100) < w.opt.badShare
	var r *region
	switch {
	case bad && len(w.regions) > 0 && w.rOp.IntN(2) == 0:
		r = pick(w.rOp, w.regions...) // heard of by chance
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

// plan makes the operations of one message: one on r, and sometimes the other
// kind on a region of the same host. nil: r has no more room for one.
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

// draw makes an operation on r.
func (e *endpoint) draw(r *region, bad bool) *op {
	w := e.w
	o := &op{w: w, token: uint64(len(w.ops) + 1), e: e, r: r, kind: rds.Write}
	if r.words != nil && !(bad && w.rOp.IntN(8) == 0) {
		if o.a = r.draw(); o.a == nil {
			return nil
		}
		o.off, o.n = o.a.word.off, rds.AtomicSize
		switch {
		case bad && w.rOp.IntN(6) == 0:
			o.off, o.refusable = o.off+1+w.rOp.IntN(7), syscall.EINVAL
		case bad && w.rOp.IntN(6) == 0:
			o.off, o.refusable = r.n+8*w.rOp.IntN(3), syscall.ERANGE
		}
		return o
	}
	if r.access&rds.AllowRead != 0 && (r.access&rds.AllowWrite == 0 || w.rOp.IntN(2) == 0) {
		o.kind = rds.Read
	}
	if bad && w.rOp.IntN(3) == 0 {
		o.kind = rds.Read + rds.Write - o.kind
	}
	if !o.place(bad && w.rOp.IntN(3) == 0) {
		return nil
	}
	return o
}

// place chooses the bytes of the region.
func (o *op) place(beyond bool) bool {
	w, r := o.w, o.r
	limit := r.n/2 + 1
	if o.kind == rds.Write {
		limit = r.n - r.next
	}
	if limit < 1 {
		return false
	}
	o.n = 1 + w.rOp.IntN(min(limit, pick(w.rOp, 16, 3000, 100_000, 1<<20)))
	if o.kind == rds.Write {
		o.off = r.next
	} else {
		o.off = w.rOp.IntN(max(r.n/2-o.n, 0) + 1)
		o.n = min(o.n, max(r.n/2, 1))
	}
	if beyond {
		o.off = r.n - w.rOp.IntN(min(o.n, r.n)) // its last byte is outside
		if o.off+o.n <= r.n {
			o.off = r.n
		}
		o.refusable = syscall.ERANGE
	}
	return true
}

// post sends operations with n bytes of immediate data.
func (e *endpoint) post(to netip.AddrPort, n int, x extra) bool {
	for _, o := range x.ops {
		align := 1
		if o.a != nil {
			align = rds.AtomicSize
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

// segments cuts the local memory into pieces.
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
