package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// HandleData takes what arrived on a lane's stream, in any cuts.
func (c *TCP) HandleData(now int64, lane int, b []byte) {
	c.calls.called(callDrive)
	c.now = now
	l := &c.lanes[lane]
	l.lived = true
	for len(b) > 0 && l.stream != nil {
		if l.left > 0 {
			n := min(l.left, len(b))
			if l.body != bodySkip {
				copy(l.dst, b[:n])
			}
			b = b[n:]
			l.placed(n)
			continue
		}
		if l.hdrLen == 0 && len(b) >= wire.HeaderLen {
			_ = wire.ParseTCP(b, &l.h)
			b = b[wire.HeaderLen:]
		} else {
			n := copy(l.hdr[l.hdrLen:], b)
			b = b[n:]
			if l.hdrLen += n; l.hdrLen < wire.HeaderLen {
				break
			}
			l.hdrLen = 0
			_ = wire.ParseTCP(l.hdr[:], &l.h)
		}
		b = l.message(b)
	}
	if l.stream != nil && l.unacked.n > 0 { // what answers acks, too
		l.checkAcks()
	}
}

// Want returns the memory into which the next bytes of a lane's stream may be read
// directly: they are payload. It returns nil if the bytes have to go through
// HandleData. The memory is valid until the next call.
func (c *TCP) Want(lane int) []byte {
	if l := &c.lanes[lane]; l.left > 0 && l.body == bodyPlace {
		return l.dst
	}
	return nil
}

// HandlePlaced tells the TCP that the next n bytes of a lane's stream were put where
// Want said. n is at most the length that Want returned.
func (c *TCP) HandlePlaced(now int64, lane, n int) {
	c.calls.called(callDrive)
	c.now = now
	c.lanes[lane].lived = true
	c.lanes[lane].placed(n)
}

func (l *tcpLane) placed(n int) {
	if l.body != bodySkip {
		l.dst = l.dst[n:]
	}
	if l.left -= n; l.left > 0 {
		return
	}
	c := l.c
	switch l.body {
	case bodyPlace:
		token := l.token
		l.token, l.dst = nil, nil
		l.accepted()
		c.host.Commit(c, &l.h, token)
	case bodyCong:
		l.dst = nil
		l.newCong(l.rxCong)
	}
}

// message begins a message whose header is in l.h, b is what follows. It returns
// what is left of b.
func (l *tcpLane) message(b []byte) []byte {
	c := l.c
	h := &l.h
	if h.Len > wire.MaxMessage {
		l.protocolError(fmt.Errorf("a message of %d bytes", h.Len))
		return nil
	}
	c.stats.RecvFrames++
	n := int(h.Len)
	l.body, l.left = bodySkip, n
	switch {
	case h.Flags == wire.FlagCong:
		if n == wire.CongLen { // others are consumed, as by the kernel
			return l.congFrame(b)
		}
	case l.duplicate():
		c.stats.RecvDropOldSeq++
		c.arrived.Control++
	case h.IsProbeAnswer():
		c.arrived.Control++
		l.received()
		c.learn(h)
		c.answers = true
		if l.probes--; l.probes <= 0 {
			l.probes = 0
			c.gated = c.gated && l.n > 0
		}
	case h.DPort == 0 && !c.cfg.IgnorePings:
		l.received()
		l.ping()
	case n <= len(b):
		l.left = 0
		l.verdict(c.host.Deliver(c, h, b[:n:n]))
		l.received()
		return b[n:]
	default:
		dst, token, v := c.host.Begin(c, h)
		if v == Accepted {
			l.body, l.dst, l.token = bodyPlace, dst, token
		} else {
			l.verdict(v)
			l.received()
		}
	}
	return b
}

// duplicate says that the message has been received before: on a connection that
// is gone. The kernel counts by lane; but which lane a connection belongs to is
// not on the wire, and after several have broken off they may come back in
// another order. A source port stays in its lane, so the port is what counts;
// pongs have none, and every lane has pings of its own.
func (l *tcpLane) duplicate() bool {
	h := &l.h
	return h.Flags&wire.FlagRetransmitted != 0 && h.Seq <= *l.last() && !mutant.On(mutant.TCPDuplicateTaken)
}

func (l *tcpLane) last() *uint64 {
	if l.h.SPort == 0 || l.h.SPort == wire.ProbePort {
		return &l.rxLast
	}
	return l.c.seen.at(l.h.SPort)
}

// received notes the sequence of a message that is whole, or of which nothing
// is kept. One without the flag counts even if it is old: the peer has
// restarted.
func (l *tcpLane) received() {
	*l.last() = l.h.Seq
	l.rxLast = l.h.Seq
	l.c.arrived.Messages++
}

func (l *tcpLane) accepted() {
	l.received()
	l.c.stats.RecvQueued++
	l.c.stats.RecvBytes += uint64(l.h.Len)
}

func (l *tcpLane) verdict(v Verdict) {
	s := &l.c.stats
	switch v {
	case Accepted:
		s.RecvQueued++
		s.RecvBytes += uint64(l.h.Len)
	case NoSocket:
		s.RecvDropNoSock++
		l.c.arrived.Control++
	case Refused:
		s.RecvRefused++
		l.c.arrived.Control++
	}
}

// congFrame takes a congestion frame, whole or in parts.
func (l *tcpLane) congFrame(b []byte) []byte {
	if len(b) >= wire.CongLen {
		l.left = 0
		l.newCong(b[:wire.CongLen])
		return b[wire.CongLen:]
	}
	if l.rxCong == nil {
		l.rxCong = make([]byte, wire.CongLen)
	}
	l.body, l.dst = bodyCong, l.rxCong
	return b
}

// ping answers one, and takes what a probe says of the peer. Nobody answers
// pongs, nor asks a port that is congested to take one.
func (l *tcpLane) ping() {
	c := l.c
	h := &l.h
	c.stats.RecvPing++
	c.arrived.Control++
	if h.IsProbe() {
		c.learn(h)
	}
	if h.SPort == 0 || c.remote.Test(h.SPort) || c.own.n >= maxPongs {
		return
	}
	c.stats.SendPong++
	l.enqueue(c.newOwn(0, h.SPort))
}

// learn takes what a probe or its answer says. How many lanes there are is
// settled once, but for more.
func (c *TCP) learn(h *wire.Header) {
	x := h.Handshake()
	if x.Gen != 0 {
		if c.gen != 0 && c.gen != x.Gen {
			c.restarted()
		}
		c.gen = x.Gen
	}
	c.bySPort = c.bySPort || x.BySPort
	n := min(h.Paths(), c.cfg.Lanes)
	c.known = true
	if n > c.n {
		c.gated, c.gate, c.gateEnd = true, c.lanes[0].nextTx, c.now+gateNs
		c.n = n
		for i := range c.lanes[1:] { // a socket that moves there must not count backwards
			l := &c.lanes[i+1]
			l.nextTx = max(l.nextTx, c.lanes[0].nextTx)
		}
		c.lanes[0].probe()
	}
	// A kernel that knew more lanes in an earlier life of ours goes on to connect
	// them, and any of them may be the one it now sends by: nothing on the wire
	// tells. So all that come are taken; we send by n.
	if c.taken = max(c.taken, c.n); !c.smaller && h.Paths() > c.taken {
		c.taken = h.Paths()
	}
}

// restarted ends what was sent to the life of the peer that is over, and forgets
// what that one has sent.
func (c *TCP) restarted() {
	c.seen = seqTable{}
	for i := range c.lanes {
		l := &c.lanes[i]
		for m := l.queue.head; m != nil; {
			next := m.priv.next
			if m.priv.posted {
				l.queue.remove(m)
				c.finish(m, Lost)
			}
			m = next
		}
	}
}
