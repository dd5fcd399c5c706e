package conn

import "github.com/rdsd/rdsd/verbs"

// ctlSlots is the control buffer of a queue pair, cut into slots of slotLen bytes.
// They are taken and come back in order.
type ctlSlots struct {
	buf  *SendBuf
	n    uint64 // how many, a power of two
	head uint64 // the oldest that is in use
	tail uint64 // the next to use
}

// open cuts buf, with slots for at most so many SENDs.
func (s *ctlSlots) open(most int) {
	s.n = uint64(pow2(min(most, len(s.buf.Mem)/slotLen)))
	s.head, s.tail = 0, 0
}

// full reports whether all slots are in use.
func (s *ctlSlots) full() bool { return s.tail-s.head == s.n }

// next returns the memory of the next slot. There is one if full is false.
func (s *ctlSlots) next() []byte {
	off := s.off()
	return s.buf.Mem[off : off+slotLen]
}

// sge is the first n bytes of the next slot.
func (s *ctlSlots) sge(n int) verbs.SGE {
	return verbs.SGE{Addr: s.buf.Addr + uint64(s.off()), Length: uint32(n), LKey: s.buf.LKey}
}

func (s *ctlSlots) off() int { return int(s.tail%s.n) * slotLen }

// postSlot posts the first n bytes of the next slot as a SEND.
func (c *Conn) postSlot(n int, rec sendRec) {
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.sges = append(c.sges, c.slots.sge(n))
	rec.slot = true
	c.post(rec, c.sges, 0)
}
