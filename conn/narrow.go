package conn

import (
	"errors"
	"fmt"

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
// Silence alone proves nothing: the peer's host may be away. So the first connection with smaller segments is a trial,
// and counts only if TCP made it without sending anything again.
//
// narrowed is what a Conn knows of that. It is learnt anew after a planned restart.
type narrowed struct {
	segment   int   // most bytes of a TCP segment of the next connections, 0: what the route permits
	proven    int   // ... of the last one that was made at once, 0: none. The next one is a trial if the two differ
	until     int64 // afterwards connections are made with full segments again
	refusedAt int64 // since when requests of the peer's for full segments are refused, 0: not since the last connection

	acked uint64 // at the look before: what the peer's TCP had acknowledged
	stuck bool   // ... and whether TCP sent the same again
}

// errNotAtOnce ends a trial.
var errNotAtOnce = errors.New("conn: small packets did not pass at once either: full segments are tried again")

// The sizes tried: what the least MTU of IPv6 leaves beside the headers, and what every IPv4 host takes.
const (
	segmentIPv6 = 1220
	segmentIPv4 = 536
)

// wideAfter is how long a Conn keeps to smaller segments before it tries full ones, with the next
// connection that it makes.
const wideAfter = 600_000_000_000

// Narrowed returns the largest TCP segment in bytes of this Conn's connection, or of its next one, if larger packets
// do not pass; else 0.
func (c *Conn) Narrowed() int {
	if s := c.link.segment; c.link.qp != nil && (s == 0 || s > c.narrow.proven) {
		return 0
	}
	return c.narrow.proven
}

// Segment returns the largest TCP segment in bytes that the host is to ask for when it dials; 0: what the
// route permits.
func (c *Conn) Segment() int { return c.link.segment }

// Path returns what TCP knows of the way to the peer; nothing, if there is no TCP. It is a system call.
func (c *Conn) Path() (p verbs.Path) {
	if q, ok := c.link.qp.(verbs.OverTCP); ok {
		p = q.Path()
	}
	return p
}

// stuck asks TCP whether it sends the same large segment again and again. small says that TCP has done so
// since the look before, although the peer was heard of since: smaller packets pass.
func (c *Conn) stuck(heard bool) (large, small bool) {
	n, p := &c.narrow, c.Path()
	small = p.Stuck && n.stuck && p.Acked == n.acked && heard
	n.stuck, n.acked = p.Stuck, p.Acked
	return p.Stuck, small
}

// narrowNext has the next connections made with smaller segments than this one or this attempt.
func (c *Conn) narrowNext() {
	n, next := &c.narrow, segmentIPv6
	if s := c.link.segment; s != 0 && s <= segmentIPv6 {
		next = segmentIPv4
	}
	if n.segment == 0 || next < n.segment {
		n.segment = next
	}
	n.until = c.now + wideAfter
}

// narrowExpired forgets what was found out long ago. An attempt begins now.
func (c *Conn) narrowExpired() {
	if c.now >= c.narrow.until {
		c.narrow = narrowed{}
	}
}

// narrowDialed notes that a connection was made that this side asked for. It is false of a trial that
// has to be given up: something was lost of it as well, so it is not the size.
func (c *Conn) narrowDialed() bool {
	n, s := &c.narrow, c.link.segment
	if s == 0 || s == n.proven {
		return true
	}
	if c.Path().Again {
		return false
	}
	n.proven = s
	c.host.Trace(c, EventNarrow, fmt.Errorf("segments have at most %d bytes from now on: see the MTU of the path, and that ICMP passes", s))
	return true
}

// narrowFailed notes that an attempt of this side has failed with err. If not even a trial connects, it is not the size.
func (c *Conn) narrowFailed(err error) {
	n := &c.narrow
	switch {
	case errors.Is(err, verbs.ErrLarge):
		c.narrowNext()
	case n.segment != n.proven && !errors.Is(err, ErrRejected) && !errors.Is(err, ErrNoBuffer):
		n.segment, n.refusedAt = n.proven, 0
	}
}

// tooWide reports whether the peer's request for a connection, with segments of up to segment bytes, is to be
// refused because this side has something to send and asks for smaller ones. The peer may refuse this side's
// as well at first, because they cross. After crossTime the peer's is taken: perhaps only the peer can connect.
func (c *Conn) tooWide(segment int) bool {
	n := &c.narrow
	if n.segment == 0 || segment <= n.segment || c.now >= n.until || !c.mayDial() {
		return false
	}
	if n.refusedAt == 0 {
		n.refusedAt = max(c.now, 1)
	}
	return c.now-n.refusedAt < crossTime
}
