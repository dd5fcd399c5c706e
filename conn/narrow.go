package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// ErrLarge ends a connection that large packets do not pass, while smaller ones do.
var ErrLarge = errors.New("conn: large packets do not pass")

// EventNarrow is the Trace event of a connection that was made with smaller segments because
// large packets do not pass.
const EventNarrow = "large packets do not pass"

// A path may drop large packets without a word: a tunnel, a wrong MTU, a filter of ICMP. TCP
// then sends the same large segment again and again, and everything waits behind it. A Conn
// makes its next connections with smaller segments. TCP announces the size when it connects,
// and so it holds in both directions.
//
// narrowed is what a Conn knows of that. It is learnt anew after a planned restart.
type narrowed struct {
	segment int   // most bytes of a TCP segment of the next connections, 0: what the route permits
	proven  bool  // a connection with such segments was made at once
	until   int64 // afterwards connections are made with full segments again
	refused bool  // a request of the peer's for full segments was refused since the last connection

	acked uint64 // at the look before: what the peer's TCP had acknowledged
	stuck bool   // ... and whether TCP sent the same again
}

// The sizes tried: what the least MTU of IPv6 leaves beside the headers, and what every IPv4 host takes.
const (
	segmentIPv6 = 1220
	segmentIPv4 = 536
)

// wideAfter is how long a Conn keeps to smaller segments before it tries full ones, with the next
// connection that it makes.
const wideAfter = 600_000_000_000

// Narrowed returns the largest TCP segment of this Conn's connections in bytes if larger packets
// do not pass; else 0.
func (c *Conn) Narrowed() int {
	if !c.narrow.proven {
		return 0
	}
	return c.narrow.segment
}

// Segment returns the largest TCP segment in bytes that the host is to ask for when it dials; 0: what the
// route permits.
func (c *Conn) Segment() int { return c.link.segment }

// stuck asks TCP whether it sends the same large segment again and again. small says that TCP has done so
// since the look before, although the peer's host is heard of: smaller packets pass.
func (c *Conn) stuck(heard bool) (large, small bool) {
	q, ok := c.link.qp.(verbs.OverTCP)
	if !ok || mutant.On(mutant.LargeLostForEver) {
		return false, false
	}
	n, p := &c.narrow, q.Path()
	small = p.Stuck && n.stuck && p.Acked == n.acked && (heard || p.Passes)
	n.stuck, n.acked = p.Stuck, p.Acked
	return p.Stuck, small
}

// narrowNext has the next connections made with smaller segments than this one or this attempt.
func (c *Conn) narrowNext() {
	n, next := &c.narrow, segmentIPv6
	if c.link.segment != 0 {
		next = segmentIPv4
	}
	if n.segment == 0 || next < n.segment {
		n.segment, n.proven = next, false
	}
	n.until = c.now + wideAfter
}

// segmentToDial returns the segment size of an attempt that begins now.
func (c *Conn) segmentToDial() int {
	if c.now >= c.narrow.until {
		c.narrow = narrowed{}
	}
	return c.narrow.segment
}

// narrowDialed notes that a connection was made that this side asked for. If it is the first one with smaller
// segments, they help.
func (c *Conn) narrowDialed() {
	if n := &c.narrow; c.link.segment != 0 && !n.proven {
		n.proven = true
		c.host.Trace(c, EventNarrow, fmt.Errorf("segments have at most %d bytes from now on: see the MTU of the path, and that ICMP passes", n.segment))
	}
}

// narrowFailed notes that an attempt of this side has failed with err. If not even that connects, it is not the size.
func (c *Conn) narrowFailed(err error) {
	switch {
	case errors.Is(err, verbs.ErrLarge):
		c.narrowNext()
	case !c.narrow.proven && !errors.Is(err, ErrRejected) && !errors.Is(err, ErrNoBuffer):
		c.narrow = narrowed{}
	}
}

// tooWide reports whether the peer's request for a connection, with segments of up to segment bytes, is to be
// refused because this side has something to send and asks for smaller ones. It is refused once: perhaps only the peer can connect.
func (c *Conn) tooWide(segment int) bool {
	n := &c.narrow
	if n.segment == 0 || segment <= n.segment || n.refused || c.now >= n.until || !c.mayDial() {
		return false
	}
	n.refused = true
	return true
}
