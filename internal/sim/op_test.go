package sim

import (
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

// op is an operation that was accepted.
type op struct {
	w      *world
	token  uint64
	id     uint64 // barrier id
	cell   *cell
	e      *endpoint
	m      *message
	kind   rds.OpKind
	r      *region
	off, n int
	local  *memory
	loff   int
	flags  rds.RDMA // Notify, Report, Silent
	at     int64
	met    int // the life of the destination host that ours knew then

	refusable syscall.Errno // why it may be refused by what was known then, 0 = by what happens later only
	offered   bool          // it may have been granted
	granted   bool          // it was

	passed    bool // by the mark
	readRight bool // when it passed, or before, the data was all there
	fate      *rds.Completion
	done      bool // delivered, or dropped: nothing may touch the target any more
	cancelled bool
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

// silent: its message is not delivered.
func (o *op) silent() bool { return o.flags.Silent && o.m.n == 0 }

// issued enters an accepted operation in the ledger.
func (o *op) issued(m *message, id uint64) {
	w := o.w
	o.m, o.id, o.at = m, id, w.now()
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
	o.offered, o.granted = o.r.wasOffered(o.e.ap), o.r.granted[o.e.ap]
}

func (w *world) hostOf(a netip.Addr) *host {
	for _, h := range w.hosts {
		if h.addr == a {
			return h
		}
	}
	return nil
}

// fits: the operation is within its region.
func (o *op) fits() bool { return o.off+o.n <= o.r.n }

func (o *op) target() []byte { return o.r.bytes()[o.off : o.off+o.n] }
func (o *op) source() []byte { return o.local.b[o.loff : o.loff+o.n] }

// stamp is the name of the operation's data.
func (o *op) stamp() uint64 { return o.token + 1<<50 }

// placed: the target holds exactly the operation's data.
func (o *op) placed() bool { return same(o.target(), o.stamp()) }

// expect puts into want what the target may hold, given what it holds.
func (o *op) expect(want, now []byte) {
	switch {
	case o.done:
		for i := range want {
			want[i] = poison
		}
	case o.fate != nil && o.fate.Errno != 0: // never posted: untouched
	default:
		data := make([]byte, o.n)
		fill(data, o.stamp())
		for i := range want {
			if now[i] == data[i] {
				want[i] = data[i]
			}
		}
	}
}

// never: the status says that the message was not delivered and never will be.
func never(s rds.Status) bool {
	return s == rds.Dropped || s == rds.RemoteError || s == rds.OtherError
}

// reachable: the region's memory is still that of the life the operation
// was for.
func (o *op) reachable() bool {
	return !o.r.revoked && o.r.e.h.life == o.r.life && o.r.e.h.up && !o.r.e.c.gone
}

// arrived: the operation's message was delivered.
func (o *op) arrived() {
	if s := o.fate; s != nil {
		if never(s.Status) {
			broken("both or neither", "message %d of operation %d came after its status %v", o.m.id, o.token, s.Status)
		}
	}
	if o.silent() {
		broken("silent", "message %d of silent operation %d was delivered", o.m.id, o.token)
	}
	if o.r.e.h.life != o.r.life {
		broken("both or neither", "message %d of operation %d came to another life than that of its region", o.m.id, o.token)
	}
	if !o.allowed() {
		broken("access", "operation %d without the right to it was delivered: %v of %d bytes at %d of region %d", o.token, o.kind, o.n, o.off, o.r.id)
	}
	o.land()
}

// allowed: it was granted, has the rights and stays within bounds.
func (o *op) allowed() bool {
	need := rds.AllowRead
	if o.kind == rds.Write {
		need = rds.AllowWrite
	}
	return o.offered && o.r.access&need != 0 && o.fits() && o.r.e.h.addr == o.cell.to
}

// land checks, once, that the data is in place, and then spoils the target:
// nobody may write it again.
func (o *op) land() {
	if o.kind != rds.Write || o.done || !o.reachable() {
		return
	}
	if !o.placed() {
		broken("both or neither", "operation %d was delivered, its %d bytes at %d of region %d are not there", o.token, o.n, o.off, o.r.id)
	}
	o.spoil()
}

func (o *op) spoil() {
	o.done = true
	t := o.target()
	for i := range t {
		t[i] = poison
	}
}

// poll looks at the mark: what it passes is the caller's again, and spoiled at
// once.
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
		o.passed = true
		if o.kind == rds.Read {
			o.readRight = o.readRight || o.fetched()
		}
		s := o.source()
		for i := range s {
			s[i] = poison + 1
		}
	}
	c.e.settle()
	for _, o := range c.ops[first:c.n] {
		if o.refusable != 0 && o.flags.Notify && o.fate == nil && c.e.open {
			broken("status", "the mark passed operation %d, which was refused, before its status was queued", o.token)
		}
	}
}

// fetched: the read's local memory has the region's content.
func (o *op) fetched() bool {
	if !o.fits() {
		return false
	}
	return string(o.source()) == string(o.r.init[guard+o.off:guard+o.off+o.n])
}

// kept: what the mark has passed stays as it was left.
func (o *op) kept() {
	if !o.passed {
		return
	}
	for i, x := range o.source() {
		if x != poison+1 {
			broken("HWM", "byte %d of the local buffer of operation %d changed after the mark had passed it", i, o.token)
		}
	}
}

// settle takes the statuses.
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
	e.completed++
	o.judge(s)
}

// restarted: the destination host is another than the one the operation was
// for.
func (o *op) restarted() bool { return o.e.h.restarted(o.cell.to, o.met, o.at) }

// restarted reports whether the host at a is not in the life any more that h
// had met at time t.
func (h *host) restarted(a netip.Addr, met int, t int64) bool {
	to := h.w.hostOf(a)
	return to.crashAt >= t || met != 0 && to.life != met
}

// judge checks that the status is one that can be true.
func (o *op) judge(s rds.Completion) {
	w := o.w
	crashed := o.restarted()
	fail := func(why string) {
		broken("status", "operation %d (%v, %d bytes at %d of region %d, %v to %v): %v errno %v: %s",
			o.token, o.kind, o.n, o.off, o.r.id, o.e.ap, o.m.flow.dst, s.Status, s.Errno, why)
	}
	if o.m.delivered && never(s.Status) {
		fail("its message was delivered")
	}
	switch s.Status {
	case rds.Success:
		if !o.allowed() {
			fail("it had no right")
		}
		if o.kind == rds.Read && !o.readRight {
			if o.passed || !o.fetched() {
				fail("its data is not there")
			}
			o.readRight = true
		}
		o.land()
	case rds.Canceled:
		if !o.cancelled {
			fail("nobody cancelled it")
		}
	case rds.Unknown:
		if !crashed && w.opt.settleTimeout >= 10e9 {
			fail("the peer never restarted")
		}
	case rds.Dropped:
		if o.kind == rds.Write && o.fits() && !o.done && o.reachable() && !crashed && o.granted {
			o.spoil()
		}
	case rds.RemoteError:
		o.judgeRefused(s, fail)
	default:
		fail("no cause for it")
	}
}

func (o *op) judgeRefused(s rds.Completion, fail func(string)) {
	need := rds.AllowRead
	if o.kind == rds.Write {
		need = rds.AllowWrite
	}
	r := o.r
	switch s.Errno {
	case syscall.EINVAL:
		if !r.dead() && o.granted && r.e.h.addr == o.cell.to && o.e.h.up {
			fail("the region is alive and was granted")
		}
	case syscall.EACCES:
		if o.granted && r.access&need != 0 && !r.dead() {
			fail("it was granted")
		}
	case syscall.ERANGE:
		if o.fits() {
			fail("it is within bounds")
		}
	case 0:
		if !r.dead() {
			fail("the region is alive")
		}
	default:
		fail("no cause for it")
	}
}
