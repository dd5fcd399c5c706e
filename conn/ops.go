package conn

import (
	"github.com/rdsd/rdsd/internal/wire"
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
	b := opBatch{wrid: wridOp | c.recTail}
	c.wrs, c.sges = c.wrs[:0], c.sges[:0]
	blocked := false // the first one has to wait
	for m := c.head(); m != nil && m.opNew(); m = c.head() {
		if !c.small(m) {
			if b.n > 0 {
				break
			}
			if b.buf != nil { // those before it were refused
				c.host.PutSendBuf(b.buf)
			}
			return c.sendLargeOp(m)
		}
		n := c.opWRs(m.Op)
		if n == 0 || n >= c.sqSize { // not on this device
			c.refuseOp(m, verbs.WCLocQPOpErr)
			continue
		}
		if c.waits(m.Op, n, &b) {
			blocked = b.n == 0
			break
		}
		if b.buf == nil {
			if b.buf = c.buffer(); b.buf == nil {
				return false
			}
		}
		need := wire.HeaderLen + len(m.Data)
		if b.n > 0 && (b.off+need > min(c.maxSend, len(b.buf.Mem)) || b.bytes >= batchBytes || b.n == batchOps) {
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
	c.postBuf(b.buf, b.end, sendRec{ops: b.first, reads: b.reads}, b.fence)
	return true
}

// sendLargeOp posts an operation whose payload travels alone.
func (c *Conn) sendLargeOp(m *Msg) bool {
	b := opBatch{wrid: wridOp | c.recTail}
	n := c.opWRs(m.Op)
	if n == 0 || n >= c.sqSize {
		c.refuseOp(m, verbs.WCLocQPOpErr)
		return true
	}
	if c.waits(m.Op, n, &b) {
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
	m.priv.sent = 0
	c.frag = m
	return c.postPiece(sendRec{ops: b.first, reads: b.reads}, b.fence)
}

// opBatch is a batch under construction; its work requests are in c.wrs.
type opBatch struct {
	wrid        uint64 // of the operation to add, but for its position
	first, last *Msg
	n           int
	bytes       uint64
	reads       int
	fence       verbs.SendFlags
	buf         *SendBuf
	off, end    int
}

// postOp asks the host and adds m's work requests; false: m was refused.
func (c *Conn) postOp(m *Msg, b *opBatch) bool {
	if !c.host.CanPost(c, m) {
		c.refuseOp(m, verbs.WCSuccess)
		return false
	}
	p := &m.priv
	p.opPosted = true
	p.refs++
	c.take(m)
	if b.last != nil {
		b.last.priv.chain = m
	} else {
		b.first = m
	}
	b.last = m
	from := len(c.wrs)
	c.wrs = m.Op.AppendWRs(c.wrs, &c.sges, &c.cfg.Attr)
	for i := from; i < len(c.wrs); i++ {
		c.wrs[i].WRID = b.wrid | uint64(b.n)<<wridOpShift
	}
	if m.Op.Fenced() {
		b.fence = verbs.SendFence
		b.reads += len(c.wrs) - from
		c.stats.RecvRDMABytes += m.Op.Len
	} else {
		c.stats.SendRDMABytes += m.Op.Len
	}
	b.n++
	b.bytes += m.Op.Len
	c.stats.SendRDMA++
	return true
}

// waits says that n more work requests must wait for completions: the send
// queue is full, or enough READs are posted to keep the peer's depth busy. A
// single operation may exceed the depth; the provider then holds it back.
func (c *Conn) waits(op *rdmaop.Op, n int, b *opBatch) bool {
	if len(c.wrs)+n+1 > c.room() {
		if b.n == 0 {
			c.stats.TxRingFull++
		}
		return true
	}
	if !op.Fenced() {
		return false
	}
	if b.reads > 0 && b.reads+n > c.readDepth {
		return true
	}
	return c.reads > 0 && c.reads+b.reads+n > 2*c.readDepth
}

func (c *Conn) opWRs(op *rdmaop.Op) int {
	a := &c.cfg.Attr
	if !op.Supported(a.Caps) {
		return 0
	}
	return op.WRCount(a.MaxSGE, a.MaxReadSGE, a.MaxMsg)
}

// refuseOp ends an operation that is never posted.
func (c *Conn) refuseOp(m *Msg, s verbs.WCStatus) {
	m.WCStatus = s
	m.priv.list.remove(m)
	c.end(m, OpRefused)
}
