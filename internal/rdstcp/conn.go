package rdstcp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Conn is one TCP connection: a conn.Stream.
type Conn struct {
	Local, Remote netip.AddrPort
	// Chosen says that Dial got a source port as it was asked for.
	Chosen bool
	// The handler's own: whose connection it is, and which of that.
	Owner any
	Lane  int

	n     *Net
	fd    int // -1: closed
	added bool
	full  bool // the last Write took fewer bytes than there were
	ready bool // in Net.ready
	ends  bool // the peer has ended it: read on until that comes

	held, finished bool
	end            bool // Finish has sent the end: a byte of its own to TCP
	more           bool // there may be something to read when it is not held
}

// Write takes bytes of the pieces, in order; fewer than all: Room follows.
// Errors are those of sendmsg.
func (c *Conn) Write(pieces [][]byte) (int, error) {
	n, want, err := c.n.io.send(c.fd, pieces)
	c.full = err == nil && n < want
	return n, err
}

// Unacked returns how many bytes written the peer's TCP has not acknowledged.
func (c *Conn) Unacked() (int, error) {
	n, err := outq(c.fd)
	if c.end && n > 0 {
		n--
	}
	return n, err
}

// Finish sends the end of this direction, behind what was written.
func (c *Conn) Finish() {
	c.end = unix.Shutdown(c.fd, unix.SHUT_WR) == nil // not of a connection that was reset
	c.finished = true
	c.Hold(false)
}

// Close ends the connection, with abort by a reset. Twice is once.
func (c *Conn) Close(abort bool) {
	if c.fd < 0 {
		return
	}
	if abort {
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if c.added {
		c.n.conns[c.fd] = nil
	}
	unix.Close(c.fd)
	c.fd = -1
	c.Hold(false)
}
