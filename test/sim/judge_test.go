package sim

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/rds"
)

// restarted reports whether the destination host is in another life than the one that the
// operation was for.
func (o *op) restarted() bool { return o.e.h.restarted(o.cell.to, o.met, o.at) }

// restarted reports whether the host at a is in another life than the one that h knew at time t.
func (h *host) restarted(a netip.Addr, met int, t int64) bool {
	to := h.w.hostOf(a)
	return to.crashAt >= t || met != 0 && to.life != met
}

// judge checks that the status can be true.
func (o *op) judge(s rds.Completion) {
	w := o.w
	crashed := o.restarted()
	fail := func(why string) {
		broken("status", "operation %d (%v, %d bytes at %d of region %d, %v to %v): %v errno %v: %s",
			o.token, o.what(), o.n, o.off, o.r.id, o.e.ap, o.m.flow.dst, s.Status, s.Errno, why)
	}
	if o.m.delivered && never(s.Status) {
		fail("its message was delivered")
	}
	for _, x := range o.m.ops {
		if x != o && x.fate != nil && (x.fate.Status == rds.Success) != (s.Status == rds.Success) {
			fail("the other operation of its message: " + x.fate.Status.Error())
		}
	}
	switch s.Status {
	case rds.Success:
		if !o.allowed() {
			fail("it had no right")
		}
		if o.capture(); o.reads() && !o.readRight {
			fail("its data is not there")
		}
		o.ran()
		o.land()
	case rds.Canceled:
		if !o.cancelled {
			fail("nobody cancelled it")
		}
	case rds.Unknown:
		switch {
		case crashed || o.m.expired():
		case w.opt.settleTimeout < 10e9 && !o.m.carries():
		default:
			fail("the peer never restarted, and it had no limit that has passed")
		}
		if o.e.h == o.r.e.h && o.cell.to == o.e.h.addr {
			fail("on one host all is known")
		}
	case rds.Dropped:
		if o.writes() && o.r.words == nil && o.fits() && !o.done && o.reachable() && !crashed && o.granted {
			o.spoil()
		}
	case rds.RemoteError:
		o.judgeRefused(s, fail)
	default:
		fail("no cause for it")
	}
}

// long reports whether the operation goes to a peer in pieces.
func (o *op) long() bool {
	piece := o.w.opt.piece
	return piece != 0 && o.n > piece || o.n > abi.MaxRDMA
}

// carries reports whether m carries an atomic. Such a message waits for its peer without
// limit, so its operations are never UNKNOWN while both daemons live. Pieces of a long operation
// ahead of it do not wait.
func (m *message) carries() bool {
	carried := false
	for _, o := range m.ops {
		if o.long() {
			return false
		}
		carried = carried || o.carried()
	}
	return carried
}

// doubt is a socket that had the cookie of a region that is not released, and no grant for it.
type doubt struct {
	r    *region
	user netip.AddrPort
}

// doubted notes an operation that was refused though its cookie had come. The grant that goes
// ahead of the cookie may have found no room, if the run has small tables or quotas. Otherwise
// doubted calls fail.
func (o *op) doubted(fail func()) {
	if !o.w.opt.scarce() || o.e.h == o.r.e.h {
		fail()
		return
	}
	if d := (doubt{o.r, o.e.ap}); !slices.Contains(o.r.e.doubts, d) {
		o.r.e.doubts = append(o.r.e.doubts, d)
	}
}

// checkDoubts checks that the owner of a region was notified of each socket that could not use
// it.
func (w *world) checkDoubts() {
	for _, e := range w.eps {
		if n := uint64(len(e.doubts)); n > e.ungranted {
			broken("notice", "%d regions of %v could not be used where they were offered, it was told of %d", n, e.ap, e.ungranted)
		}
	}
}

// ofNext reports whether an earlier operation of the message names memory of another owner of
// the port that owns this operation's region.
func (o *op) ofNext() bool {
	for _, b := range o.m.ops {
		if b == o {
			return false
		}
		if b.r.e.ap == o.r.e.ap && b.r.e != o.r.e {
			return true
		}
	}
	return false
}

func (o *op) judgeRefused(s rds.Completion, fail func(string)) {
	r := o.r
	switch s.Errno {
	case syscall.EINVAL:
		if !r.dead() && o.granted && r.e.h.addr == o.cell.to && o.e.h.up && o.off%8 == 0 && !o.ofNext() {
			o.doubted(func() { fail("the region is alive and was granted") })
		}
	case syscall.EACCES:
		if o.granted && r.access&o.right() != 0 && !r.dead() {
			o.doubted(func() { fail("it was granted") })
		}
	case syscall.ERANGE:
		if o.off+o.n <= o.r.n {
			fail("it is within bounds")
		}
	case syscall.EOPNOTSUPP:
		if o.supported() && o.cell.to == r.e.h.addr {
			fail("it is supported")
		}
	case syscall.ENOBUFS:
		if o.w.opt.quotaOps == 0 || o.e.c.uid == 0 {
			fail("there is no quota")
		}
	case 0:
		if !r.dead() {
			fail("the region is alive")
		}
	default:
		fail("no cause for it")
	}
}
