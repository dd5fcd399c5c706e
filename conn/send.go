package conn

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// copyMax is the longest payload that is copied next to others; above it a
// registered payload is cheaper to post where it is.
const copyMax = 8 << 10

// NeedFlush reports whether Flush may have something to do. It is cheap.
func (c *Conn) NeedFlush() bool {
	switch c.state {
	case Down:
		return c.redial.At == 0 && c.mayDial()
	case Up:
		return c.link.ready && !c.closed && (c.dirty || c.LetsGo())
	}
	return false
}

// Flush posts what credits and the send queue allow: messages, the congestion
// map, and an ack or credits that are due. When Down with something to send
// and no back-off pending it starts to connect.
func (c *Conn) Flush(now int64) {
	c.calls.Drive()
	c.now = now
	switch c.state {
	case Down:
		if c.NeedFlush() {
			c.dial()
		}
	case Up:
		if c.link.ready && !c.closed {
			c.dirty = false
			c.pump()
			c.watch()
		}
	}
}

// pump posts until something is missing: messages, credits, room or buffers.
func (c *Conn) pump() {
	if c.stops.pending() {
		c.stops.release(&c.out.queue, &c.cong.remote)
	}
	if c.k.on {
		c.kernelPump()
		return
	}
	for c.state == Up && c.sendNext() {
	}
	if c.state == Up && (c.ack.now || c.credits.grantable() >= c.creditsDue()) && c.canSend() {
		c.sendAck()
	}
}

// sendNext posts what is next; false: nothing is, or it has to wait.
func (c *Conn) sendNext() bool {
	if c.out.frag != nil {
		return c.sendPiece()
	}
	if c.cong.due {
		return c.sendSmall()
	}
	m := c.head()
	switch {
	case m == nil:
		return false
	case m.OpNew():
		return c.sendOps()
	case c.small(m):
		return c.sendSmall()
	}
	return c.startLarge(m)
}

// head returns the message whose turn it is, nil if none may be sent now.
func (c *Conn) head() *msg.Msg {
	for _, l := range [...]*msg.List{&c.out.rtx, &c.out.notices, &c.out.control} {
		if l.Head != nil {
			return l.Head
		}
	}
	for m := c.out.queue.Head; m != nil; m = c.out.queue.Head {
		if c.turnAway(m) {
			continue
		}
		if m.OpNew() && (c.settling.on || c.halt.ops) {
			// A REVOKE may still be on its way, or the daemon is about to pause.
			return nil
		}
		return m
	}
	return nil
}

// small says that m is copied into a SEND, with others if possible. It fits into one with its header.
func (c *Conn) small(m *msg.Msg) bool {
	n := len(m.Data)
	return (n <= copyMax || m.LKey == 0) && c.headOf(m)+n <= c.link.maxSend
}

// take moves m from its queue to the unacked list and gives it a sequence.
func (c *Conn) take(m *msg.Msg) {
	p := &m.Track
	p.List.Leave(m)
	if p.Seq == 0 {
		c.out.number(m)
	}
	if p.Flags&wire.FlagRetransmitted != 0 {
		c.stats.Retransmitted += uint64(m.Datagrams())
	}
	p.State, p.Posted = msg.Posted, true
	if m.OpNew() {
		p.Op = msg.OpPosted
	}
	if m.Watched {
		c.cfg.Posted(m)
	}
	c.out.askAck(p, m.Datagrams())
	c.out.unacked.Push(m)
	if !c.stops.resume.Empty() {
		c.stops.resumed(m)
	}
}

// header fills c.txh for m. Every frame carries the ack and what credits fit.
func (c *Conn) header(m *msg.Msg) {
	h := &c.out.h
	h.Seq = m.Track.Seq
	h.Len = uint32(len(m.Data))
	h.SPort, h.DPort = m.SPort, m.DPort
	h.Flags = m.Track.Flags
	h.SrcInc, h.DstInc = m.SrcInc, m.DstInc
	h.Ext = [wire.ExtLen]byte{}
	if m.Run != 0 {
		h.SetExtRun(m.Run)
	}
	if m.Internal != 0 {
		h.SPort, h.DPort = 0, uint16(m.Internal)
		h.Flags |= wire.FlagInternal
	}
	if m.Op != nil {
		h.SetExtRDMA(m.Op.RKey())
		if m.Op2 != nil && m.Op2.RKey() != m.Op.RKey() {
			h.AddExtRDMA(m.Op2.RKey())
		}
		if m.Silent {
			h.Flags |= wire.FlagSilent
		}
	}
	if m.DestCookie != 0 {
		h.SetExtDest(m.DestCookie)
	}
	if m.Carried() {
		h.Flags |= wire.FlagAtomic
	}
	if c.traces(m) {
		h.AddExtTraceparent()
	}
	if m.Anybody && m.DstInc == 0 {
		h.SetExtAnybody()
	}
	if m.AckNow || m.Op != nil {
		h.Flags |= wire.FlagAckRequired
	}
	if h.Flags&wire.FlagAckRequired != 0 {
		c.stats.SendAckRequired++
	}
	c.piggyback()
}

// put writes m's frame to b and returns its length, pad included.
func (c *Conn) put(b []byte, m *msg.Msg) int {
	c.header(m)
	c.putHead(b, m)
	head := c.headOf(m)
	n := head + len(m.Data)
	end := wire.Pad(n)
	if end <= len(b) {
		clear(b[n:end]) // the buffer's last frame may have been another peer's
	}
	copy(b[head:], m.Data)
	c.sentWhole(m)
	return end
}

func (c *Conn) sentWhole(m *msg.Msg) {
	if c.rtt.seq == 0 && (m.AckNow || m.Track.Flags&wire.FlagAckRequired != 0) && m.Op == nil {
		c.rtt.begin(m.Track.Seq, c.now)
	}
	c.stats.SendMsgs += uint64(m.Datagrams())
	c.stats.SendBytes += uint64(m.PayloadLen())
}

// buffer takes a send buffer; nil if the pool is empty, then Flush must be
// called again.
func (c *Conn) buffer() *SendBuf {
	b := c.host.SendBuf()
	if b == nil {
		c.dirty = true
	}
	return b
}

// postBuf posts the first n bytes of buf.
func (c *Conn) postBuf(buf *SendBuf, n int, rec sendRec, flags verbs.SendFlags) {
	rec.buf = buf
	c.credits.left--
	c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr, Length: uint32(n), LKey: buf.LKey})
	c.post(rec, c.sges[len(c.sges)-1:], flags)
}

// sendSmall posts one SEND with the congestion map, if it changed, and as many
// small messages as fit.
func (c *Conn) sendSmall() bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	limit := min(c.link.maxSend, len(buf.Mem))
	off, end := 0, 0
	if c.cong.due {
		off = c.putCong(buf.Mem)
		end = off
	}
	for m := c.head(); m != nil && !m.OpNew() && c.small(m); m = c.head() {
		n := c.headOf(m) + len(m.Data)
		if off+n > limit {
			break
		}
		c.take(m)
		end = off + n
		off += c.put(buf.Mem[off:], m)
	}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.postBuf(buf, end, sendRec{}, 0)
	return true
}

// startLarge begins a message that travels alone.
func (c *Conn) startLarge(m *msg.Msg) bool {
	if !c.canSend() {
		return false
	}
	c.take(m)
	m.Track.Sent = 0
	c.out.frag = m
	return true
}

// sendPiece posts the next fragment of c.frag: the whole message if it fits.
func (c *Conn) sendPiece() bool {
	if !c.canSend() {
		return false
	}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	return c.postPiece(sendRec{}, 0)
}

// postPiece posts c.wrs and the next fragment behind them. A payload in
// registered memory is not copied.
func (c *Conn) postPiece(rec sendRec, flags verbs.SendFlags) bool {
	m := c.out.frag
	head := c.headOf(m)
	n := min(len(m.Data)-m.Track.Sent, c.link.maxSend-head)
	piece := m.Data[m.Track.Sent : m.Track.Sent+n]
	var buf *SendBuf
	if m.LKey == 0 {
		if buf = c.buffer(); buf == nil {
			return false
		}
	}
	addr := m.Addr + uint64(m.Track.Sent)
	m.Track.Sent += n
	last := m.Track.Sent == len(m.Data)
	if last {
		c.sentWhole(m)
		c.out.frag = nil
	}
	c.header(m)
	if buf != nil {
		c.putHead(buf.Mem, m)
		copy(buf.Mem[head:], piece)
		c.postBuf(buf, head+n, rec, flags)
	} else {
		c.putHead(c.ctl.next(), m)
		first := len(c.sges)
		c.sges = append(c.sges,
			c.ctl.sge(head),
			verbs.SGE{Addr: addr, Length: uint32(n), LKey: m.LKey})
		rec.large, rec.ctl = m, true
		m.Track.Refs++
		c.credits.left--
		c.post(rec, c.sges[first:], flags)
	}
	if last && m.Track.State == msg.Ending && m.Track.Refs == 0 {
		c.finish(m, m.Track.Outcome)
	}
	return true
}
