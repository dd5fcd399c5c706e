package sim

import (
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs"
)

// op is an operation that was accepted.
type op struct {
	w      *world
	token  uint64
	id     uint64 // barrier id
	cell   *cell
	e      *endpoint
	m      *message
	kind   abi.OpKind
	a      *atomicOp // nil if it is a read or write of kind
	r      *region
	off, n int
	local  *memory // nil if a call that waits uses the library's own memory
	loff   int
	flags  rds.RDMA // Notify, Report, Silent
	at     int64
	met    int // the life of the destination host that this host knew then
	life   int // the life of this host

	refusable syscall.Errno // why it may be refused by what was known then; 0 if only later events can refuse it
	granted   bool          // it was

	passed    bool // the mark has passed it
	readRight bool // all data was there when the mark passed, or before
	fate      *rds.Completion
	done      bool // delivered or dropped, so nothing may touch the target any more
	cancelled bool
	unsent    bool // the call that was to send it failed
}

// cell is what one socket sends to one host.
type cell struct {
	e    *endpoint
	to   netip.Addr
	ops  []*op
	last uint64 // mark seen
	n    int    // ops passed
}

func (e *endpoint) cell(to netip.Addr) *cell {
	for _, c := range e.cells {
		if c.to == to {
			return c
		}
	}
	c := &cell{e: e, to: to}
	e.cells = append(e.cells, c)
	return c
}

// allSilent reports whether all operations have the flag Silent, so that their message is
// not delivered.
func allSilent(ops []*op) bool {
	for _, o := range ops {
		if !o.flags.Silent {
			return false
		}
	}
	return true
}

// describe sets the operation in m.
func (o *op) describe(m *rds.Message) {
	if o.a != nil {
		m.Atomic = o.a.describe(o)
		return
	}
	x := o.flags
	x.Write, x.Cookie, x.RemoteOff, x.Token, x.Local = o.kind == abi.OpWrite, o.r.r.Cookie(), uint64(o.off), o.token, o.segments()
	m.Op = &x
}

// issued adds an accepted operation to the ledger.
func (o *op) issued(m *message, id uint64, call int64) {
	w := o.w
	o.m, o.id, o.at, o.life = m, id, w.now(), o.e.h.life
	o.met = o.e.h.met[m.flow.dst.Addr()]
	o.cell = o.e.cell(m.flow.dst.Addr())
	if want := uint64(len(o.cell.ops) + 1); id != want {
		broken("HWM", "barrier id %d, want %d", id, want)
	}
	o.cell.ops = append(o.cell.ops, o)
	w.ops = append(w.ops, o)
	o.r.ops = append(o.r.ops, o)
	if o.r.access&rds.UseOnce != 0 {
		o.r.used = true
	}
	o.granted = o.r.granted[o.e.ap] || o.r.mayAll()
	if o.a != nil {
		o.a.call = call
		o.a.word.ops = append(o.a.word.ops, o)
	}
}

func (w *world) hostOf(a netip.Addr) *host {
	for _, h := range w.hosts {
		if h.addr == a {
			return h
		}
	}
	for _, h := range w.gone {
		if h.addr == a {
			return h
		}
	}
	return nil
}

// fits reports whether the operation is within its region, and aligned if it has to be.
func (o *op) fits() bool { return o.off+o.n <= o.r.n && (o.a == nil || o.off%8 == 0) }

func (o *op) target() []byte { return o.r.bytes()[o.off : o.off+o.n] }

// source is its local memory.
func (o *op) source() []byte {
	if o.local == nil {
		return nil
	}
	return o.local.b[o.loff : o.loff+o.n]
}

// data is the bytes that the operation writes.
func (o *op) data() []byte { return content(o.token+1<<50, o.n) }

// placed reports whether the target holds exactly the operation's data.
func (o *op) placed() bool { return differ(o.target(), o.data()) < 0 }

func (o *op) writes() bool { return o.a == nil && o.kind == abi.OpWrite }
func (o *op) reads() bool  { return o.a == nil && o.kind == abi.OpRead }

// expect sets in want what the target may hold. now is what it holds.
func (o *op) expect(want, now []byte) {
	switch {
	case o.done:
		copy(want, spoilt)
	case o.unposted(): // untouched
	default:
		data := o.data()
		if differ(now[:o.n], data) < 0 {
			copy(want, data)
			return
		}
		for i := range want {
			if now[i] == data[i] {
				want[i] = data[i]
			}
		}
	}
}

// never reports whether the status says that the message was not delivered and never will
// be.
func never(s rds.Status) bool {
	return s == rds.Dropped || s == rds.RemoteError || s == rds.OtherError
}

// reachable reports whether the region's memory is still that of the life that the
// operation was for.
func (o *op) reachable() bool {
	return !o.r.revoked && o.r.e.h.life == o.r.life && o.r.e.h.up && !o.r.e.c.gone
}

// arrived notes that the operation's message was delivered.
func (o *op) arrived() {
	if s := o.fate; s != nil {
		if never(s.Status) {
			broken("both or neither", "message %d of operation %d came after its status %v", o.m.id, o.token, s.Status)
		}
	}
	if o.r.e.h.life != o.r.life {
		broken("both or neither", "message %d of operation %d came to another life than that of its region", o.m.id, o.token)
	}
	if !o.allowed() {
		broken("access", "operation %d without the right to it was delivered: %v of %d bytes at %d of region %d", o.token, o.what(), o.n, o.off, o.r.id)
	}
	o.ran()
	o.land()
}

// ran notes that the operation has run and has ended.
func (o *op) ran() {
	if o.a != nil && o.a.ret == 0 {
		o.a.ret = o.w.tick()
	}
}

func (o *op) what() string {
	if o.a != nil {
		return o.a.kind.String()
	}
	return o.kind.String()
}

// right is the access that the operation needs.
func (o *op) right() rds.Access {
	switch {
	case o.a != nil:
		return rds.AllowAtomic
	case o.kind == abi.OpWrite:
		return rds.AllowWrite
	}
	return rds.AllowRead
}

// supported reports whether the devices of both hosts can do the operation.
func (o *op) supported() bool {
	if o.w.byTCP(o.e.h.addr, o.cell.to) {
		return false
	}
	if o.a == nil || o.r.e.h == o.e.h {
		return true
	}
	need := verbs.CapAtomics
	if o.a.extended() {
		need |= verbs.CapMaskedAtomic
	}
	return o.w.net.Attr.Caps&need == need
}

// allowed reports whether the operation may have been granted, has the rights, stays within
// bounds, and can be done. It is called when the operation has run: an operation that waits may
// be granted meanwhile.
func (o *op) allowed() bool {
	return o.r.wasOffered(o.e.ap) && o.r.access&o.right() != 0 && o.fits() && o.r.e.h.addr == o.cell.to && o.supported()
}

// land checks once that the data is in place. Then it spoils the target, which nobody may
// write again.
func (o *op) land() {
	if !o.writes() || o.done || !o.reachable() {
		return
	}
	if !o.placed() {
		broken("both or neither", "operation %d was delivered, its %d bytes at %d of region %d are not there", o.token, o.n, o.off, o.r.id)
	}
	o.spoil()
}

func (o *op) spoil() {
	o.done = true
	copy(o.target(), spoilt)
}

// poll reads the mark. Local memory of operations that the mark has passed belongs to the
// caller again, and is spoilt at once.
func (c *cell) poll() {
	h := c.e.s.HWM(c.to)
	if h < c.last {
		broken("HWM", "of %v to %v fell from %d to %d", c.e.ap, c.to, c.last, h)
	}
	if h > uint64(len(c.ops)) {
		broken("HWM", "of %v to %v is %d, %d operations were issued", c.e.ap, c.to, h, len(c.ops))
	}
	c.last = h
	if c.n == int(h) {
		return
	}
	c.e.w.log(c.e.h, "hwm", int64(h), int64(c.e.ap.Port()), 0)
	first := c.n
	for ; c.n < int(h); c.n++ {
		o := c.ops[c.n]
		o.capture()
		o.passed = true
		copy(o.source(), spent)
	}
	c.e.settle()
	for _, o := range c.ops[first:c.n] {
		if o.refusable != 0 && o.flags.Notify && o.fate == nil && c.e.open {
			broken("status", "the mark passed operation %d, which was refused, before its status was queued", o.token)
		}
	}
}

// capture notes what has arrived in local memory, before that is spoilt.
func (o *op) capture() {
	switch {
	case o.passed:
	case o.reads():
		o.readRight = o.readRight || o.fetched()
	case o.a != nil && o.local != nil:
		o.a.take(o.source())
	}
}

// fetched reports whether the read's local memory has the region's content.
func (o *op) fetched() bool {
	return o.fits() && differ(o.source(), o.r.init()[guard+o.off:guard+o.off+o.n]) < 0
}

// kept checks that memory that the mark has passed does not change any more.
func (o *op) kept() {
	if !o.passed {
		return
	}
	if i := differ(o.source(), spent[:len(o.source())]); i >= 0 {
		broken("HWM", "byte %d of the local buffer of operation %d changed after the mark had passed it", i, o.token)
	}
}

// settle takes the statuses that have arrived.
func (e *endpoint) settle() {
	w := e.w
	for {
		n := e.s.Completions(w.comps)
		for i := range n {
			e.completion(w.comps[i])
		}
		if n < len(w.comps) {
			return
		}
	}
}

func (e *endpoint) completion(s rds.Completion) {
	w := e.w
	if s.Token&ofMessage != 0 {
		e.outcome(s)
		return
	}
	if s.Token == 0 || s.Token > uint64(len(w.ops)) {
		broken("status", "of an unknown operation %d", s.Token)
	}
	o := w.ops[s.Token-1]
	w.log(e.h, "status", int64(s.Token), int64(s.Status), int64(s.Errno))
	switch {
	case o.e != e || o.id != s.ID || o.cell.to != s.To:
		broken("status", "%+v came to %v, it is of operation %d of %v to %v", s, e.ap, o.id, o.e.ap, o.cell.to)
	case o.fate != nil:
		broken("status", "operation %d has two: %v and %v", s.Token, o.fate.Status, s.Status)
	case !o.flags.Notify && !(o.flags.Report && s.Status != rds.Success):
		broken("status", "operation %d did not ask for %v", s.Token, s.Status)
	}
	o.fate = &s
	o.judge(s)
}
