package sim

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// tcpEnd is one end of a TCP connection.
type tcpEnd struct {
	t     *tcpHost
	peer  *tcpEnd
	local netip.AddrPort
	fd    int

	added  bool
	events uint32 // that Wait has not returned

	flight   []byte // written, not arrived
	unacked  int    // bytes written whose acknowledgement has not come
	armed    bool   // something of flight arrives at some time
	full     bool   // Send took fewer bytes than there were
	finished bool   // its end is behind flight
	endSent  bool   // and has arrived
	endAcked bool

	in     []byte // arrived, not read
	ended  bool   // the peer's end has arrived
	cut    bool   // nothing crosses the connection any more
	reset  bool   // and this end knows
	closed bool   // nobody has it any more
	gone   bool   // its host knows of no such connection: what arrives brings a reset
}

const (
	tcpSndBuf = 64 << 10
	tcpRcvBuf = 64 << 10

	tcpAgainNs = 20_000_000     // from a packet that was lost to the next try
	tcpAliveNs = 25_000_000_000 // from the last sign of life of a host to a reset
)

// tcpDelay draws how long a packet takes.
func (w *world) tcpDelay() int64 {
	t := &w.opt.timing.Wire
	return t.Min + below(w.rTCP, t.Max-t.Min+1)
}

// tcpFault draws whether something happens that does so ppm times in a million.
func (w *world) tcpFault(ppm uint32) bool { return !w.over && w.rTCP.IntN(1e6) < int(ppm) }

func (c *tcpEnd) event(what uint32) {
	if c.closed {
		return
	}
	if c.events |= what; c.added {
		c.t.h.kick()
	}
}

func (c *tcpEnd) send(pieces [][]byte) (n, want int, err error) {
	if c.reset || c.finished {
		return 0, 0, unix.EPIPE
	}
	w := c.t.h.w
	room := tcpSndBuf - c.unacked
	if w.rTCP.IntN(8) == 0 {
		room = min(room, w.rTCP.IntN(300))
	}
	for _, p := range pieces[:min(len(pieces), 64)] {
		k := max(min(len(p), room), 0)
		c.flight = append(c.flight, p[:k]...)
		n, want, room = n+k, want+len(p), room-k
	}
	c.unacked += n
	if c.full = n < want; c.full {
		w.net.At(w.now()+w.tcpDelay(), c.room)
	}
	c.arm(w.tcpDelay())
	return n, want, nil
}

// room says that there is some again.
func (c *tcpEnd) room() {
	if c.full && c.unacked <= tcpSndBuf/2 {
		c.full = false
		c.event(unix.EPOLLOUT)
	}
}

func (c *tcpEnd) finish() error {
	if c.reset {
		return unix.ENOTCONN
	}
	c.finished = true
	c.arm(c.t.h.w.tcpDelay())
	return nil
}

func (c *tcpEnd) recv(a, b []byte) (n int, again bool, err error) {
	n = copy(a, c.in)
	n += copy(b, c.in[n:])
	c.in = c.in[n:]
	switch {
	case n > 0:
		c.peer.arm(c.t.h.w.tcpDelay()) // there is room again
		return n, false, nil
	case c.reset:
		return 0, false, unix.ECONNRESET
	case c.ended:
		return 0, false, nil
	}
	return 0, true, nil
}

// arm has what is in flight arrive after ns.
func (c *tcpEnd) arm(ns int64) {
	if c.armed || c.cut || len(c.flight) == 0 && (!c.finished || c.endSent) {
		return
	}
	c.armed = true
	w := c.t.h.w
	w.net.At(w.now()+ns, c.arrives)
}

// arrives has some of what is in flight arrive, or the end.
func (c *tcpEnd) arrives() {
	c.armed = false
	w, p := c.t.h.w, c.peer
	switch {
	case c.cut:
		return
	case w.net.Swallows(c.local.Addr(), p.local.Addr()), p.gone && !p.t.h.up:
		c.arm(tcpAgainNs)
		return
	case p.gone:
		c.breaks(w.tcpDelay())
		return
	case w.tcpFault(w.opt.tcpBreak):
		c.severed()
		return
	}
	k := min(len(c.flight), tcpRcvBuf-len(p.in))
	if k > 0 && w.rTCP.IntN(4) == 0 {
		k = 1 + w.rTCP.IntN(k)
	}
	if p.closed && k > 0 { // nobody reads that any more
		c.cuts()
		c.breaks(w.tcpDelay())
		return
	}
	p.in = append(p.in, c.flight[:k]...)
	c.flight = c.flight[k:]
	end := c.finished && !c.endSent && len(c.flight) == 0
	if end {
		c.endSent, p.ended = true, true
		p.event(unix.EPOLLRDHUP)
	}
	if k > 0 {
		p.event(unix.EPOLLIN)
	}
	if k > 0 {
		c.arm(w.tcpDelay())
	}
	if k > 0 || end {
		w.net.At(w.now()+w.tcpDelay(), func() { c.acked(k, end) })
	}
}

// acked is the arrival of an acknowledgement.
func (c *tcpEnd) acked(n int, end bool) {
	w := c.t.h.w
	switch {
	case c.cut:
		return
	case w.net.Swallows(c.local.Addr(), c.peer.local.Addr()):
		w.net.At(w.now()+tcpAgainNs, func() { c.acked(n, end) })
		return
	}
	c.endAcked = c.endAcked || end
	c.unacked -= n
	c.room()
}

// close is that of the process, or of its kernel when the process ends. What was not read makes it
// a reset.
func (c *tcpEnd) close(abort bool) {
	c.closed = true
	if abort || len(c.in) > 0 {
		c.in = nil
		c.cuts()
		c.peer.breaks(c.t.h.w.tcpDelay())
		return
	}
	_ = c.finish()
}

// vanish ends c without a word to its peer.
func (c *tcpEnd) vanish() {
	c.closed, c.gone, c.cut = true, true, true
	c.peer.breaks(tcpAliveNs)
}

// cuts has nothing cross the connection any more.
func (c *tcpEnd) cuts() { c.cut, c.peer.cut = true, true }

// breaks has c notice a reset after ns.
func (c *tcpEnd) breaks(ns int64) {
	w := c.t.h.w
	w.net.At(w.now()+ns, func() {
		switch {
		case c.reset:
		case ns < tcpAliveNs && w.net.Swallows(c.local.Addr(), c.peer.local.Addr()):
			c.breaks(tcpAgainNs)
		default:
			c.cuts()
			c.reset = true
			c.event(unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLERR | unix.EPOLLHUP | unix.EPOLLRDHUP)
		}
	})
}

// severed breaks the connection between its ends. One of them may notice late.
func (c *tcpEnd) severed() {
	w := c.t.h.w
	w.saw("TCP: broken on the way")
	c.cuts()
	for _, e := range []*tcpEnd{c, c.peer} {
		t := &w.opt.timing.Learn
		if w.tcpFault(w.opt.faults.HalfOpen) {
			t = &w.opt.timing.Late
		}
		e.breaks(t.Min + below(w.rTCP, t.Max-t.Min+1))
	}
}
