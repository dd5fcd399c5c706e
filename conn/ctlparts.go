package conn

import "github.com/rdsd/rdsd/verbs"

// ctlParts is the control buffer of a queue pair, cut into parts of ctlPartLen bytes.
// They are taken and come back in order.
type ctlParts struct {
	buf  *SendBuf
	n    uint64 // how many, a power of two
	head uint64 // the oldest that is in use
	tail uint64 // the next to use
}

// open cuts buf, with parts for at most so many SENDs.
func (s *ctlParts) open(most int) {
	s.n = uint64(pow2(min(most, len(s.buf.Mem)/ctlPartLen)))
	s.head, s.tail = 0, 0
}

// full reports whether all parts are in use.
func (s *ctlParts) full() bool { return s.tail-s.head == s.n }

// next returns the memory of the next part. There is one if full is false.
func (s *ctlParts) next() []byte {
	off := s.off()
	return s.buf.Mem[off : off+ctlPartLen]
}

// sge is the first n bytes of the next part.
func (s *ctlParts) sge(n int) verbs.SGE {
	return verbs.SGE{Addr: s.buf.Addr + uint64(s.off()), Length: uint32(n), LKey: s.buf.LKey}
}

func (s *ctlParts) off() int { return int(s.tail%s.n) * ctlPartLen }

// postCtl posts the first n bytes of the next part as a SEND.
func (c *Conn) postCtl(n int, rec sendRec) {
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.sges = append(c.sges, c.ctl.sge(n))
	rec.ctl = true
	c.post(rec, c.sges, 0)
}
