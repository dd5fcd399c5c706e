package tcp

import (
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/wire"
)

// receiving is the receiving side of a lane: a header, then its payload.
type receiving struct {
	last uint64 // highest sequence received

	hdr    [wire.HeaderLen]byte // a header in parts
	hdrLen int
	h      wire.Header
	body   bodyKind
	left   int    // payload bytes to come
	dst    []byte // where the rest of them goes
	token  any

	cong   []byte // a congestion map in parts
	congAt int64  // when the last one came, 0: none
}

// bodyKind says what becomes of a payload.
type bodyKind uint8

const (
	bodySkip bodyKind = iota // nothing
	bodyPing                 // nothing, but its ping is answered
	bodyPlace
	bodyCong
)

// skipped reports whether the payload is kept nowhere.
func (k bodyKind) skipped() bool { return k <= bodyPing }

// HandleData takes what arrived on a lane's stream, in any cuts.
func (c *Conn) HandleData(now int64, lane int, b []byte) {
	c.calls.Drive()
	c.now = now
	l := &c.lanes[lane]
	l.lived = true
	for len(b) > 0 && l.stream != nil {
		if l.in.left > 0 {
			n := min(l.in.left, len(b))
			if !l.in.body.skipped() {
				copy(l.in.dst, b[:n])
			}
			b = b[n:]
			l.placed(n)
			continue
		}
		if l.in.hdrLen == 0 && len(b) >= wire.HeaderLen {
			_ = wire.ParseTCP(b, &l.in.h)
			b = b[wire.HeaderLen:]
		} else {
			n := copy(l.in.hdr[l.in.hdrLen:], b)
			b = b[n:]
			if l.in.hdrLen += n; l.in.hdrLen < wire.HeaderLen {
				break
			}
			l.in.hdrLen = 0
			_ = wire.ParseTCP(l.in.hdr[:], &l.in.h)
		}
		b = l.message(b)
	}
	if l.stream != nil && l.out.unacked.N > 0 { // what answers acks, too
		l.checkAcks()
	}
}

// Want returns the memory into which the next bytes of a lane's stream may be read
// directly: they are payload. It returns nil if the bytes have to go through
// HandleData. The memory is valid until the next call.
func (c *Conn) Want(lane int) []byte {
	if l := &c.lanes[lane]; l.in.left > 0 && l.in.body == bodyPlace {
		return l.in.dst
	}
	return nil
}

// HandlePlaced tells the Conn that the next n bytes of a lane's stream were put where
// Want said. n is at most the length that Want returned.
func (c *Conn) HandlePlaced(now int64, lane, n int) {
	c.calls.Drive()
	c.now = now
	c.lanes[lane].lived = true
	c.lanes[lane].placed(n)
}

func (l *lane) placed(n int) {
	if !l.in.body.skipped() {
		l.in.dst = l.in.dst[n:]
	}
	if l.in.left -= n; l.in.left > 0 {
		return
	}
	c := l.c
	switch l.in.body {
	case bodyPing:
		l.received()
		l.ping()
	case bodyPlace:
		token := l.in.token
		l.in.token, l.in.dst = nil, nil
		l.accepted()
		c.host.Commit(c, &l.in.h, token)
	case bodyCong:
		l.in.dst = nil
		l.newCong(l.in.cong)
	}
}

// message begins a message whose header is in l.h, b is what follows. It returns
// what is left of b.
func (l *lane) message(b []byte) []byte {
	c := l.c
	h := &l.in.h
	if h.Len > abi.MaxMessage {
		l.protocolError(fmt.Errorf("a message of %d bytes", h.Len))
		return nil
	}
	c.stats.RecvFrames++
	n := int(h.Len)
	l.in.body, l.in.left = bodySkip, n
	isCong := h.Flags == wire.FlagCong
	h.Flags &^= wire.FlagRun // a Linux host sends no runs, whatever the flag means there
	switch {
	case isCong:
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
		c.peer.answers = true
		if l.open = max(l.open-1, 0); l.open == 0 && l.n == 0 {
			c.gate.until = 0
		}
	case h.DPort == 0 && !c.cfg.IgnorePings:
		if l.in.body = bodyPing; n == 0 {
			l.placed(0)
		}
	case n <= len(b):
		l.in.left = 0
		l.verdict(c.host.Deliver(c, h, b[:n:n]))
		l.received()
		return b[n:]
	default:
		dst, token, v := c.host.Begin(c, h)
		if v == conn.Accepted {
			l.in.body, l.in.dst, l.in.token = bodyPlace, dst, token
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
func (l *lane) duplicate() bool {
	h := &l.in.h
	return h.Flags&wire.FlagRetransmitted != 0 && h.Seq <= *l.last()
}

func (l *lane) last() *uint64 {
	if l.in.h.SPort == 0 || l.in.h.SPort == wire.ProbePort {
		return &l.in.last
	}
	return l.c.seen.at(l.in.h.SPort)
}

// received notes the sequence of a message that is whole, or of which nothing
// is kept. One without the flag counts even if it is old: the peer has
// restarted.
func (l *lane) received() {
	*l.last() = l.in.h.Seq
	l.in.last = l.in.h.Seq
	l.c.arrived.Messages++
}

func (l *lane) accepted() {
	l.received()
	l.c.stats.RecvQueued++
	l.c.stats.RecvBytes += uint64(l.in.h.Len)
}

func (l *lane) verdict(v conn.Verdict) {
	s := &l.c.stats
	switch v {
	case conn.Accepted:
		s.RecvQueued++
		s.RecvBytes += uint64(l.in.h.Len)
	case conn.NoSocket:
		s.RecvDropNoSock++
		l.c.arrived.Control++
	case conn.Refused:
		s.RecvRefused++
		l.c.arrived.Control++
	}
}

// congFrame takes a congestion frame, whole or in parts.
func (l *lane) congFrame(b []byte) []byte {
	if len(b) >= wire.CongLen {
		l.in.left = 0
		l.newCong(b[:wire.CongLen])
		return b[wire.CongLen:]
	}
	if l.in.cong == nil {
		l.in.cong = make([]byte, wire.CongLen)
	}
	l.in.body, l.in.dst = bodyCong, l.in.cong
	return b
}

// ForgetPartial withdraws the message that is arriving in pieces and for which Begin
// returned token. Its memory is the host's again, and its other pieces are skipped.
func (c *Conn) ForgetPartial(token any) {
	c.calls.Forget()
	for i := range c.lanes {
		if l := &c.lanes[i]; l.in.token != nil && l.in.token == token {
			l.in.token, l.in.dst = nil, nil
			l.in.body = bodySkip
		}
	}
}

// Missing returns how many bytes are still to come of the message for which Begin
// returned token; 0 if that message is not arriving.
func (c *Conn) Missing(token any) int {
	for i := range c.lanes {
		if l := &c.lanes[i]; l.in.token != nil && l.in.token == token {
			return l.in.left
		}
	}
	return 0
}

// seqTable has a sequence for each port; what was never set is 0.
type seqTable struct{ pages [256]*[256]uint64 }

func (t *seqTable) at(port uint16) *uint64 {
	p := &t.pages[port>>8]
	if *p == nil {
		*p = new([256]uint64)
	}
	return &(*p)[port&255]
}
