package sim

import (
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// noticed checks and counts a notice.
func (e *endpoint) noticed(n *rds.Notice) {
	e.w.notes++
	w := e.w
	w.log(e.h, "notice", int64(n.Kind), int64(n.To.Port()), int64(n.Count))
	if !n.To.IsValid() && (n.Kind == rds.Lost || n.Kind == rds.NoSocket || n.Kind == rds.GaveUp) {
		e.folded += n.Count // about destinations that were closed in between
		return
	}
	if n.Kind == rds.NotGranted {
		e.ungranted += n.Count
		if !n.To.IsValid() {
			e.folded += n.Count
		}
		if f := w.flows[flowKey{e.id, n.To}]; f != nil { // nil if the offer was made by Expose
			f.notGranted += n.Count
		}
		if most := e.offers * w.lives(); e.ungranted > most {
			broken("notice", "%v was told that %d regions were not granted, it has made %d offers that may be refused", e.ap, e.ungranted, most)
		}
		return
	}
	if w.flows[flowKey{e.id, n.To}] == nil {
		broken("notice", "%v was told %v of %v, where it sent nothing", e.ap, n.Kind, n.To)
	}
	f := e.flow(n.To)
	local := n.To.Addr() == e.h.addr
	fail := func(why string) {
		broken("notice", "%v was told %v of %v, count %d: %s", e.ap, n.Kind, n.To, n.Count, why)
	}
	switch n.Kind {
	case rds.Lost:
		f.lost += n.Count
		if local {
			fail("that is its own host")
		}
	case rds.NoSocket:
		f.nosock += n.Count
	case rds.GaveUp:
		f.gaveUp += n.Count
		past := uint64(0)
		for _, m := range f.msgs {
			if len(m.ops) == 0 && m.expired() {
				past++
			}
		}
		if f.gaveUp > past {
			fail("there were not so many whose limit has passed")
		}
	case rds.PeerDown, rds.PeerUp:
		if n.Kind == rds.PeerUp {
			f.ups += n.Count
		} else {
			f.downs += n.Count
		}
		switch {
		case e.muted:
			fail("it did not want to know")
		case local:
			fail("that is its own host")
		case f.ups > e.h.ups[n.To.Addr()]:
			fail("that did not happen so often")
		}
	}
}

// lives bounds how often one offer can be refused: it is made anew for each life of its peer.
func (w *world) lives() uint64 {
	if !w.opt.scarce() {
		return 1
	}
	n := 1
	for _, h := range w.hosts {
		n += h.life + h.forgot
	}
	return uint64(n)
}

// takeRelief checks the relief that is reported. It must be of a destination that was congested,
// and is reported once.
func (e *endpoint) takeRelief() {
	if !e.monitored {
		return
	}
	mask := krds.Of(e.s).CongUpdates()
	if mask == 0 {
		return
	}
	e.w.log(e.h, "relief", int64(mask), int64(e.ap.Port()), int64(len(e.congested)))
	for bit := uint64(1); bit != 0; bit <<= 1 {
		if mask&bit == 0 {
			continue
		}
		var kept []netip.AddrPort
		for _, to := range e.congested {
			if portBit(to) != bit {
				kept = append(kept, to)
			}
		}
		switch n := len(e.congested) - len(kept); {
		case n == 0 && e.vague&bit == 0:
			broken("congestion", "%v was told of the relief of ports %#x, it had failed at %v", e.ap, bit, e.congested)
		case n > 1:
			e.vague |= bit // relief of the others may be reported again, or this report was for all of them
		}
		e.congested = kept
	}
}

// portBit returns the bit that stands for a destination in the result of CongUpdates.
func portBit(to netip.AddrPort) uint64 { return 1 << (to.Port() % 64) }

// failedAt notes a destination whose relief is to be reported.
func (e *endpoint) failedAt(to netip.AddrPort) {
	if e.monitored && !slices.Contains(e.congested, to) {
		e.congested = append(e.congested, to)
	}
}

// zero is a message that brings back a zero-copy cookie, and perhaps memory.
type zero struct {
	cookie uint32
	m      *message
	mem    *memory // nil if the payload was copied
	off, n int
}

func (z *zero) bytes() []byte { return z.mem.b[z.off : z.off+z.n] }

// zero makes a zero for n bytes, with memory of its own if from is set.
func (e *endpoint) zero(n int, from bool) *zero {
	w := e.w
	z := &zero{cookie: w.zeros + 1, n: n}
	if from && n > 0 {
		if z.mem, z.off = e.c.carve(n, 1); z.mem == nil {
			return nil
		}
	}
	return z
}

// lent notes the message that was accepted.
func (e *endpoint) lent(z *zero, m *message) {
	e.w.zeros++
	z.m = m
	e.zeros = append(e.zeros, z)
}

// takeZeros takes cookies. It overwrites the memory that comes back at once.
func (e *endpoint) takeZeros() {
	if len(e.zeros) == 0 {
		return
	}
	var got [16]uint32
	for {
		n := e.s.ZeroCopyDone(got[:])
		for _, cookie := range got[:n] {
			e.zeroDone(cookie)
		}
		if n < len(got) {
			return
		}
	}
}

func (e *endpoint) zeroDone(cookie uint32) {
	e.w.log(e.h, "zerocopy", int64(cookie), 0, 0)
	for _, z := range e.zeros {
		if z.cookie == cookie {
			e.zeros = without(e.zeros, z)
			if z.mem != nil {
				copy(z.bytes(), spoilt)
			}
			return
		}
	}
	broken("zero copy", "cookie %d came to %v, which sent none or has it back", cookie, e.ap)
}
