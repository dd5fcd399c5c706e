package conn

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// kernelPump is pump.
func (c *Conn) kernelPump() {
	for c.state == Up && c.kernelNext() {
	}
	if c.state == Up && c.ack.now && c.canSend() {
		c.kernelAck()
	}
	c.kernelPrompt()
}

// kernelNext posts what is next; false: nothing is, or it has to wait.
func (c *Conn) kernelNext() bool {
	c.credits.left = kernelCredits
	switch {
	case c.out.frag != nil:
		return c.kernelPieces(nil)
	case c.cong.due || c.k.congTx > 0:
		return c.kernelCong()
	}
	m := c.kernelHead()
	switch {
	case m == nil:
		return false
	case m.OpNew():
		return c.kernelOps()
	case len(m.Data) <= kernelPiece:
		return c.kernelSmall()
	}
	if !c.canSend() {
		return false
	}
	c.kernelTake(m)
	m.Track.Sent = 0
	c.out.frag = m
	return true
}

// kernelHead returns the message whose turn it is, as head, but of a run a datagram.
func (c *Conn) kernelHead() *msg.Msg {
	m := c.head()
	if m != nil && m.Run != 0 {
		return c.cuts.Next(&c.out.queue, m)
	}
	return m
}

// kernelTake is take, and notes for the run of m, if it has one, that it was posted.
func (c *Conn) kernelTake(m *msg.Msg) {
	c.take(m)
	if m.IsPart() {
		run := m.Track.Cut.Run
		first := !run.Track.Posted
		run.Track.Posted, run.Track.Seq = true, m.Track.Seq
		if run.Watched && first {
			c.cfg.Posted(run)
		}
	}
}

// kernelHeader fills c.txh for a frame of m.
func (c *Conn) kernelHeader(m *msg.Msg) {
	h := &c.out.h
	*h = wire.Header{Seq: m.Track.Seq, Ack: c.k.ack, Len: uint32(len(m.Data)), SPort: m.SPort, DPort: m.DPort,
		Flags: m.Track.Flags & (wire.FlagAckRequired | wire.FlagRetransmitted)}
	if m.Op != nil {
		h.SetExtRDMA(m.Op.RKey())
		if m.Op2 != nil && m.Op2.RKey() != m.Op.RKey() {
			h.AddExtRDMA(m.Op2.RKey())
		}
	}
	if m.DestCookie != 0 {
		h.SetExtDest(m.DestCookie)
	}
	if m.AckNow || m.Op != nil {
		h.Flags |= wire.FlagAckRequired
	}
	if h.Flags&wire.FlagAckRequired != 0 {
		c.stats.SendAckRequired++
		c.k.asked = max(c.k.asked, m.Track.Seq)
	}
	c.ack = ackDue{}
}

// kernelSend adds a SEND of sgl to c.wrs. What is not the last of its record is
// not signaled.
func (c *Conn) kernelSend(sgl []verbs.SGE, flags verbs.SendFlags) {
	c.wrs = append(c.wrs, verbs.SendWR{WRID: wridPart | c.sq.tail, Op: verbs.OpSend, Flags: flags, SGL: sgl})
	c.stats.SendFrames++
}

// kernelPost posts c.wrs as one record. A kernel looks at what it received when
// a SEND is solicited: the last one of a message has to be; those between, so
// that a long message does not have to fit its receive queue.
func (c *Conn) kernelPost(rec sendRec) {
	last := &c.wrs[len(c.wrs)-1]
	if last.Op == verbs.OpSend {
		last.Flags |= verbs.SendSolicited
	}
	last.WRID = c.sq.tail
	last.Flags |= verbs.SendSignaled
	c.postWRs(rec)
}

// kernelSmall posts messages of one frame each, as many as fit a buffer.
func (c *Conn) kernelSmall() bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	room := min(c.room(), kernelBatch)
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	off := 0
	for m := c.kernelHead(); m != nil && !m.OpNew() && len(m.Data) <= kernelPiece && len(c.wrs) < room; m = c.kernelHead() {
		if off+wire.HeaderLen+len(m.Data) > len(buf.Mem) {
			break
		}
		c.kernelTake(m)
		off = c.kernelPut(m, buf, off, 0)
	}
	c.kernelPost(sendRec{buf: buf})
	return true
}

// kernelPut writes the only frame of m into buf at off and adds its SEND. It
// returns where the next one may begin.
func (c *Conn) kernelPut(m *msg.Msg, buf *SendBuf, off int, flags verbs.SendFlags) int {
	c.kernelHeader(m)
	c.out.h.Put(buf.Mem[off:])
	n := wire.HeaderLen + copy(buf.Mem[off+wire.HeaderLen:], m.Data)
	c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: uint32(n), LKey: buf.LKey})
	c.kernelSend(c.sges[len(c.sges)-1:], flags|verbs.SendSolicited)
	c.sentWhole(m)
	return off + wire.Pad(n)
}

// kernelPieces posts the next fragments of c.frag, behind the operations of b
// if there is one. A payload in registered memory is not copied.
func (c *Conn) kernelPieces(b *opBatch) bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	m := c.out.frag
	rec := sendRec{buf: buf}
	fence := verbs.SendFlags(0)
	if b == nil {
		c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	} else {
		rec.ops, rec.reads, rec.bytes = b.first, b.reads, b.bytes
		fence = b.fence
	}
	step := wire.HeaderLen
	if m.LKey == 0 {
		step = kernelFrame
	} else {
		rec.large = m
		m.Track.Refs++
	}
	c.kernelHeader(m)
	room := min(c.room()-len(c.wrs), kernelBatch)
	done := false
	for off := 0; !done && room > 0 && off+step <= len(buf.Mem); off += wire.Pad(step) {
		n := min(len(m.Data)-m.Track.Sent, kernelPiece)
		piece := m.Data[m.Track.Sent : m.Track.Sent+n]
		at := m.Addr + uint64(m.Track.Sent)
		m.Track.Sent += n
		room--
		c.out.h.Put(buf.Mem[off:])
		first := len(c.sges)
		if m.LKey == 0 {
			copy(buf.Mem[off+wire.HeaderLen:], piece)
			c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: uint32(wire.HeaderLen + n), LKey: buf.LKey})
		} else {
			c.sges = append(c.sges, verbs.SGE{Addr: buf.Addr + uint64(off), Length: wire.HeaderLen, LKey: buf.LKey},
				verbs.SGE{Addr: at, Length: uint32(n), LKey: m.LKey})
		}
		flags := fence
		fence = 0
		if done = m.Track.Sent == len(m.Data); done {
			flags |= verbs.SendSolicited
		}
		c.kernelSend(c.sges[first:len(c.sges):len(c.sges)], flags)
	}
	if done {
		c.sentWhole(m)
		c.out.frag = nil
	}
	c.kernelPost(rec)
	if done && m.Track.State == msg.Ending && m.Track.Refs == 0 {
		c.finish(m, m.Track.Outcome)
	}
	return true
}

// kernelCong posts our map, in two frames.
func (c *Conn) kernelCong() bool {
	if !c.canSend() {
		return false
	}
	buf := c.buffer()
	if buf == nil {
		return false
	}
	k := &c.k
	if k.congTx == 0 {
		c.cong.due = false // a change from here on is another map
	}
	var whole [wire.CongLen]byte
	c.cong.own.Put(whole[:])
	c.out.h = wire.Header{Ack: k.ack, Len: wire.CongLen, Flags: wire.FlagCong}
	c.out.h.Put(buf.Mem)
	copy(buf.Mem[wire.HeaderLen:], whole[k.congTx:k.congTx+kernelPiece])
	flags := verbs.SendFlags(0)
	if k.congTx += kernelPiece; k.congTx == wire.CongLen {
		k.congTx = 0
		flags = verbs.SendSolicited
		c.cong.told = c.cong.told || !c.cong.own.Empty()
	}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.postBuf(buf, kernelFrame, sendRec{}, flags)
	return true
}

// kernelAck posts an ack frame.
func (c *Conn) kernelAck() {
	c.out.h = wire.Header{Ack: c.k.ack}
	c.ack = ackDue{}
	c.out.h.Put(c.ctl.next())
	c.credits.left--
	c.stats.AckSent++
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	c.sges = append(c.sges, c.ctl.sge(wire.HeaderLen))
	c.post(sendRec{ctl: true}, c.sges, verbs.SendSolicited)
}

// kernelOps posts the operations at the head of the queue: their RDMA work
// requests and then a SEND for each one's message, but none for silent ones. The
// first SEND waits for what has a response, and the others for the first.
func (c *Conn) kernelOps() bool {
	if !c.canSend() {
		return false
	}
	b := opBatch{wrid: wridOp | c.sq.tail}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	sends := 0
	size := 0
	blocked := false
	for m := c.head(); m != nil && m.OpNew(); m = c.head() {
		long := len(m.Data) > kernelPiece
		if long && b.n > 0 {
			break
		}
		m.Track.Atomic = msg.ByDevice // as it may have been for a peer before this one
		n, reads, ok := c.opWRs(m)
		if ok && m.Silent && !c.k.placed {
			// Nothing would ever say that it has been carried out.
			m.WCStatus, m.Bad = verbs.WCLocQPOpErr, m.Op
			ok = false
		}
		if !ok {
			c.refuseOp(m)
			continue
		}
		if c.waits(n+sends, reads, &b) {
			blocked = b.n == 0
			break
		}
		if b.buf == nil {
			if b.buf = c.buffer(); b.buf == nil {
				return false
			}
		}
		need := wire.Pad(wire.HeaderLen + len(m.Data))
		if b.n > 0 && (size+need > len(b.buf.Mem) || b.bytes >= batchBytes || sends == kernelBatch) {
			break
		}
		if !c.postOp(m, &b) {
			continue
		}
		if long {
			c.host.PutSendBuf(b.buf) // kernelPieces takes it
			m.Track.Sent = 0
			c.out.frag = m
			return c.kernelPieces(&b)
		}
		if !m.Silent {
			size += need
			sends++
		}
	}
	if b.n == 0 {
		if b.buf != nil {
			c.host.PutSendBuf(b.buf)
		}
		return !blocked
	}
	rec := sendRec{buf: b.buf, ops: b.first, reads: b.reads, bytes: b.bytes}
	for m := b.first; m != nil; m = m.Track.Chain {
		if m.Silent {
			c.sentWhole(m)
			continue
		}
		b.off = c.kernelPut(m, b.buf, b.off, b.fence)
		b.fence = 0
	}
	c.kernelPost(rec)
	return true
}

// kernelPrompt sees to it that what is posted is acked some time.
func (c *Conn) kernelPrompt() {
	k := &c.k
	switch {
	case c.out.unacked.Tail == nil || c.out.unacked.Tail.Track.Seq <= k.asked, c.out.rtx.N+c.out.queue.N > 0, c.out.frag != nil:
		k.prompt = 0 // or what is to come sees to it
	case k.prompt == 0:
		k.prompt = c.now + promptDelay*c.cfg.AckDelay
	}
}

// kernelAsk has what is posted acked.
func (c *Conn) kernelAsk() {
	c.k.prompt = 0
	c.ask()
}
