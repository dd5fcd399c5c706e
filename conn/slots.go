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

// slot returns the memory of the next slot. room has said that there is one.
func (c *Conn) slot() []byte {
	off := c.slotOff()
	return c.slots.buf.Mem[off : off+slotLen]
}

func (c *Conn) slotOff() int { return int(c.slots.tail%c.slots.n) * slotLen }

// postSlot posts the first n bytes of the next slot as a SEND.
func (c *Conn) postSlot(n int, rec sendRec) {
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.sges = append(c.sges, verbs.SGE{Addr: c.slots.buf.Addr + uint64(c.slotOff()), Length: uint32(n), LKey: c.slots.buf.LKey})
	rec.slot = true
	c.post(rec, c.sges, 0)
}
