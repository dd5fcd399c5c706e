package rdstcp

import "net/netip"

// Conn is one TCP connection. It implements tcp.Stream.
type Conn struct {
	Local, Remote netip.AddrPort
	// Chosen says that Dial got a source port of the wanted lane.
	Chosen bool
	// Owner and Lane belong to the handler: whose connection this is, and which of the
	// owner's lanes.
	Owner any
	Lane  int

	n     *Net
	fd    int // -1 if closed
	added bool
	full  bool   // the last Write took fewer bytes than there were
	ready bool   // in Net.ready
	ends  bool   // the peer has ended it; it is read until its end
	got   uint64 // bytes that were read

	held, finished bool
	end            bool // Finish has sent the end (FIN), which TCP counts as a byte
	more           bool // there may be something to read once it is not held

	tap tapState
}

// Write writes the pieces in order and returns how many bytes it wrote. If it wrote fewer
// than all, Handler.Room follows. Errors are those of sendmsg.
func (c *Conn) Write(pieces [][]byte) (int, error) {
	n, want, err := c.n.sys.Send(c.fd, pieces)
	c.full = err == nil && n < want
	if t := c.tapped(); t != nil {
		left := n
		for _, p := range pieces {
			k := min(left, len(p))
			c.saw(t, true, p[:k])
			left -= k
		}
	}
	return n, err
}

// Unacked returns how many bytes written the peer's TCP has not acknowledged.
func (c *Conn) Unacked() (int, error) {
	n, err := c.n.sys.Unacked(c.fd)
	if c.end && n > 0 {
		n--
	}
	return n, err
}

// Finish ends this direction after what was written.
func (c *Conn) Finish() {
	c.end = c.n.sys.Finish(c.fd) == nil // fails if the connection was reset
	c.finished = true
	c.Hold(false)
}

// Close ends the connection, with a reset if abort is set. A second Close does nothing.
func (c *Conn) Close(abort bool) {
	if c.fd < 0 {
		return
	}
	if c.added {
		c.n.conns[c.fd] = nil
	}
	c.n.sys.End(c.fd, abort)
	c.fd = -1
	c.Hold(false)
}
