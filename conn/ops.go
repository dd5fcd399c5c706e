package conn

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

const (
	// batchBytes ends a batch of operations: the first one's message waits for
	// the last one's bytes.
	batchBytes = 256 << 10
	// batchOps bounds a batch by what a WRID can name.
	batchOps = 1 << 12
)

// sendOps posts the operations at the head of the queue: all their RDMA work
// requests, unsignaled, then one SEND with all their messages, so that one
// completion, and one fence, serves them all. An operation with a payload too
// long for that goes alone. It reports whether there was progress.
func (c *Conn) sendOps() bool {
	if !c.canSend() {
		return false
	}
	b := opBatch{wrid: wridOp | c.sq.tail}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	blocked := false // the first one has to wait
	for m := c.head(); m != nil && m.OpNew(); m = c.head() {
		if m.Track.Atomic = msg.ByDevice; c.carries(m) {
			m.Track.Atomic = msg.Carried
		}
		if !c.small(m) {
			if b.n > 0 {
				break
			}
			if b.buf != nil { // those before it were refused
				c.host.PutSendBuf(b.buf)
			}
			return c.sendLargeOp(m)
		}
		n, reads, ok := c.opWRs(m)
		if !ok {
			c.refuseOp(m)
			continue
		}
		if c.waits(n, reads, &b) {
			blocked = b.n == 0
			break
		}
		if b.buf == nil {
			if b.buf = c.buffer(); b.buf == nil {
				return false
			}
		}
		need := c.headOf(m) + len(m.Data)
		if b.n > 0 && (b.off+need > min(c.link.maxSend, len(b.buf.Mem)) || b.bytes >= batchBytes || b.n == batchOps) {
			break
		}
		if !c.postOp(m, &b) {
			continue
		}
		b.end = b.off + need
		b.off += c.put(b.buf.Mem[b.off:], m)
	}
	if b.n == 0 {
		if b.buf != nil {
			c.host.PutSendBuf(b.buf)
		}
		return !blocked // some were refused
	}
	c.postBuf(b.buf, b.end, sendRec{ops: b.first, reads: b.reads, bytes: b.bytes}, b.fence)
	return true
}

// sendLargeOp posts an operation whose payload travels alone.
func (c *Conn) sendLargeOp(m *msg.Msg) bool {
	b := opBatch{wrid: wridOp | c.sq.tail}
	n, reads, ok := c.opWRs(m)
	if !ok {
		c.refuseOp(m)
		return true
	}
	if c.waits(n, reads, &b) {
		return false
	}
	if m.LKey == 0 { // be sure of the buffer before CanPost is asked
		buf := c.buffer()
		if buf == nil {
			return false
		}
		c.host.PutSendBuf(buf)
	}
	if !c.postOp(m, &b) {
		return true
	}
	m.Track.Sent = 0
	c.out.frag = m
	return c.postPiece(sendRec{ops: b.first, reads: b.reads, bytes: b.bytes}, b.fence)
}

// opBatch is a batch under construction; its work requests are in c.wrs.
type opBatch struct {
	wrid        uint64   // of the operation to add, but for its position
	first, last *msg.Msg // with work requests
	chained     int      // how many those are
	n           int
	bytes       uint64
	reads       int
	fence       verbs.SendFlags
	buf         *SendBuf
	off, end    int
}

// postOp asks the host and adds m's work requests; false: m was refused.
func (c *Conn) postOp(m *msg.Msg, b *opBatch) bool {
	if !c.host.CanPost(c, m) {
		c.refuseOp(m)
		return false
	}
	p := &m.Track
	c.take(m)
	b.n++
	if m.Carried() {
		c.stats.SendRDMA++
		c.stats.RecvRDMABytes += m.Atomic().Len
	}
	if !m.HasRDMA() {
		return true
	}
	p.Refs++
	if b.last != nil {
		b.last.Track.Chain = m
	} else {
		b.first = m
	}
	b.last = m
	wrid := b.wrid | uint64(b.chained)<<wridOpShift
	b.chained++
	c.addOp(m.Op, wrid, b)
	if m.Op2 != nil && !m.Carried() {
		c.addOp(m.Op2, wrid|wridOp2, b)
	}
	return true
}

// addOp adds the work requests of one operation. What has a response makes the
// SEND behind it wait for that: the fence is the SEND's alone.
func (c *Conn) addOp(op *rdmaop.Op, wrid uint64, b *opBatch) {
	from := len(c.wrs)
	c.wrs = op.AppendWRs(c.wrs, &c.sges, &c.cfg.Attr)
	for i := from; i < len(c.wrs); i++ {
		c.wrs[i].WRID = wrid
	}
	if op.Fenced() {
		b.fence = verbs.SendFence
		b.reads += len(c.wrs) - from
		c.stats.RecvRDMABytes += op.Len
	} else {
		c.stats.SendRDMABytes += op.Len
	}
	b.bytes += op.Len
	c.stats.SendRDMA++
}

// waits says that n more work requests, of which reads have a response, must
// wait for completions: the send queue is full, or enough READs are posted to
// keep the peer's depth busy. A single message may exceed the depth; the
// provider then holds it back.
func (c *Conn) waits(n, reads int, b *opBatch) bool {
	if len(c.wrs)+n+1 > c.room() {
		if b.n == 0 {
			c.stats.TxRingFull++
		}
		return true
	}
	if reads == 0 {
		return false
	}
	if b.reads > 0 && b.reads+reads > c.link.readDepth {
		return true
	}
	return c.sq.reads > 0 && c.sq.reads+b.reads+reads > 2*c.link.readDepth
}

// opWRs returns how many work requests m's operations make, and how many of
// them have a response. ok is false if one of the operations can never be posted:
// m says why.
func (c *Conn) opWRs(m *msg.Msg) (n, reads int, ok bool) {
	a := &c.cfg.Attr
	for _, op := range [...]*rdmaop.Op{m.Op, m.Op2} {
		if op == nil {
			break
		}
		if m.Carried() && op.Kind.Atomic() {
			continue
		}
		if !op.Supported(a.Caps & c.peerCaps()) {
			m.WCStatus, m.Bad = verbs.WCLocQPOpErr, op
			return 0, 0, false
		}
		k := op.WRCount(a.MaxSGE, a.MaxReadSGE, a.MaxMsg)
		if n += k; n >= c.sq.size {
			m.WCStatus, m.Bad = verbs.WCLocLenErr, op
			return 0, 0, false
		}
		if op.Fenced() {
			reads += k
		}
	}
	return n, reads, true
}

// peerCaps are the capabilities that both sides need and the peer has.
func (c *Conn) peerCaps() (caps verbs.Caps) {
	if c.link.hello.Features&wire.FeatureAtomics != 0 {
		caps |= verbs.CapAtomics
	}
	if c.link.hello.Features&wire.FeatureMasked != 0 {
		caps |= verbs.CapMaskedAtomic
	}
	return caps
}

// features is what HELLO says of a device with caps. The host carries out atomics with
// instructions of the processor, so beside a device that does not respect those it
// leaves all atomics to the device.
func features(caps verbs.Caps) (f uint32) {
	if caps&verbs.CapAtomics != 0 {
		f |= wire.FeatureAtomics
	}
	if caps&verbs.CapMaskedAtomic != 0 {
		f |= wire.FeatureMasked
	}
	if all := verbs.CapAtomics | verbs.CapMaskedAtomic | verbs.CapGlobalAtomics; caps&all == all {
		f |= wire.FeatureCarried
	}
	return f
}

// refuseOp ends a message whose operations are never posted.
func (c *Conn) refuseOp(m *msg.Msg) {
	m.Track.List.Remove(m)
	c.end(m, msg.OpRefused)
}
