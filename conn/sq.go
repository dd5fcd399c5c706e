package conn

import (
	"fmt"
	"math/bits"

	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// sendRec is what a posted SEND keeps until it completes.
type sendRec struct {
	buf   *SendBuf // goes back to the pool
	large *Msg     // its Data is part of the SEND
	ops   *Msg     // first of the chain of operations posted ahead of it
	wrs   int      // work requests, operations' included
	reads int      // READs and atomics of them
	bytes uint64   // that its operations move
	slot  bool     // it has the oldest slot of the control buffer
}

const (
	// CtlLen is the length of a connection's control buffer.
	CtlLen = 32 * slotLen

	// slotLen is the part of the control buffer that a SEND may have: for the
	// header of a payload that is sent from its place, for an ack or HELLO.
	slotLen = 128

	// A connection has records for firstRecs SENDs, and for more, up to
	// mostRecs, when it had so many on their way.
	firstRecs = 8
	mostRecs  = 256
)

// sendQueue is what was posted on the queue pair and has not completed.
type sendQueue struct {
	recs    []sendRec // ring: one per SEND; grows with what is outstanding
	maxRecs int
	head    uint64 // number of the oldest record
	tail    uint64 // of the next one
	lost    uint64 // records from here on have no completion to come; 0 = none
	size    int    // work requests that fit
	used    int
	reads   int    // READs and atomics outstanding
	opBytes uint64 // of all operations outstanding
}

// A SEND's WRID is the number of its record. The WRID of an operation's work
// request names the record of the SEND behind it and the operation.
const (
	// HostWRID is the bit of a work request id that no send request of a Conn
	// has: a host may mark its receives with it.
	HostWRID = 1 << 62

	wridOp      = 1 << 63
	wridOp2     = 1 << 61 // with wridOp: the message's second operation
	wridOpShift = 40      // position of the operation in its chain
	wridRec     = 1<<wridOpShift - 1
)

// openSQ sets up the bookkeeping for a fresh queue pair. One slot of the send
// queue stays free for the drain marker.
func (c *Conn) openSQ() {
	size := c.cfg.MaxSendWR
	if q := c.link.qp.Cap().MaxSendWR; q > 0 && (size <= 0 || q < size) {
		size = q
	}
	c.sq.size = max(size-1, 1)
	c.sq.maxRecs = pow2(min(c.sq.size, mostRecs))
	c.slots.n = uint64(pow2(min(c.sq.maxRecs, len(c.slots.buf.Mem)/slotLen)))
	c.sq.recs = make([]sendRec, min(firstRecs, c.sq.maxRecs))
	c.sq.head, c.sq.tail, c.sq.lost = 0, 0, 0
	c.slots.head, c.slots.tail = 0, 0
	c.sq.used, c.sq.reads, c.sq.opBytes = 0, 0, 0
}

// pow2 is the largest power of two that is not above n, which is positive.
func pow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// room says how many work requests may still be posted; the last of them must
// be a SEND.
func (c *Conn) room() int {
	if c.sq.tail-c.sq.head == uint64(c.sq.maxRecs) || c.slots.tail-c.slots.head == c.slots.n {
		return 0
	}
	return c.sq.size - c.sq.used
}

// post appends a SEND of sgl to c.wrs and posts them all. If the provider takes
// only a part, nothing more can be said of it than that the queue pair must go.
func (c *Conn) post(rec sendRec, sgl []verbs.SGE, flags verbs.SendFlags) {
	c.wrs = append(c.wrs, verbs.SendWR{
		WRID: c.sq.tail, Op: verbs.OpSend, Flags: flags | verbs.SendSignaled, SGL: sgl,
	})
	c.stats.SendFrames++
	c.postWRs(rec)
}

// postWRs posts c.wrs, of which the last one has the number of the record.
func (c *Conn) postWRs(rec sendRec) {
	rec.wrs = len(c.wrs)
	n, err := c.link.qp.PostSend(c.wrs)
	if c.sq.tail-c.sq.head == uint64(len(c.sq.recs)) {
		c.growRecs()
	}
	c.sq.recs[c.sq.tail%uint64(len(c.sq.recs))] = rec
	if rec.slot {
		c.slots.tail++
	}
	c.sq.used += rec.wrs
	c.sq.reads += rec.reads
	c.sq.opBytes += rec.bytes
	c.sq.tail++
	if err == nil && n == len(c.wrs) {
		return
	}
	c.fail(fmt.Errorf("post send: %d of %d accepted: %w", n, len(c.wrs), err))
	// The operations' work requests may run without a SEND to tell when they
	// have ended. In ERR an empty one is flushed behind them.
	if n > 0 {
		c.wrs = append(c.wrs[:0], verbs.SendWR{WRID: c.sq.tail - 1, Op: verbs.OpSend, Flags: verbs.SendSignaled})
		if n, _ = c.link.qp.PostSend(c.wrs); n == 1 {
			return
		}
	}
	c.sq.lost = c.sq.tail
}

// growRecs doubles the ring of records.
func (c *Conn) growRecs() {
	recs := make([]sendRec, 2*len(c.sq.recs))
	for r := c.sq.head; r != c.sq.tail; r++ {
		recs[r%uint64(len(recs))] = c.sq.recs[r%uint64(len(c.sq.recs))]
	}
	c.sq.recs = recs
}

// drained says that every record that will complete has completed. The one
// whose post failed without a marker ends with the queue pair.
func (c *Conn) drained() bool {
	if c.sq.lost != 0 {
		return c.sq.head >= c.sq.lost-1
	}
	return c.sq.head == c.sq.tail
}

// HandleSend takes a send completion.
func (c *Conn) HandleSend(now int64, wc *verbs.WC) {
	c.calls.called(callDrive)
	c.now = now
	if c.link.qp == nil || wc.QPNum != c.link.num {
		return
	}
	if wc.Status != verbs.WCSuccess {
		c.sendFailed(wc)
	}
	if wc.WRID >= c.sq.tail { // an operation's, or nobody's
		return
	}
	// Completions are in order: this one stands for those before it.
	for c.sq.head <= wc.WRID && c.sq.head < c.sq.tail {
		r := &c.sq.recs[c.sq.head%uint64(len(c.sq.recs))]
		if c.k.on && c.k.placed && wc.Status == verbs.WCSuccess {
			c.kernelPlaced(r)
		}
		if r.reads > 0 && wc.Status == verbs.WCSuccess { // the peer's device has answered them
			c.heard()
		}
		c.complete(r)
	}
	c.dirty = true
}

// sendFailed breaks the connection off, and names the operation if one failed:
// an error of one of its own work requests that says something of it, not just
// of the connection. Its message was not sent. All others settle by the next
// handshake.
func (c *Conn) sendFailed(wc *verbs.WC) {
	switch wc.Status {
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
		c.k.nak = true
	}
	if _, named := rdmaop.StatusOf(wc.Status); named {
		if m, op := c.opOf(wc.WRID); m != nil && m.priv.state == msgPosted {
			m.WCStatus, m.Bad = wc.Status, op
			c.out.unacked.remove(m)
			c.end(m, OpFailed)
		}
	}
	if c.state == Up {
		c.fail(fmt.Errorf("%w: status %d", ErrCompletion, wc.Status))
	}
}

// opOf returns the operation a work request belonged to, and its message; nil if
// it was a SEND.
func (c *Conn) opOf(wrid uint64) (*Msg, *rdmaop.Op) {
	r := wrid & wridRec
	if r < c.sq.head || r >= c.sq.tail {
		return nil, nil
	}
	m := c.sq.recs[r%uint64(len(c.sq.recs))].ops
	if wrid&wridOp == 0 {
		return c.bareOp(m)
	}
	for i := wrid &^ (wridOp | wridOp2) >> wridOpShift; i > 0 && m != nil; i-- {
		m = m.priv.chain
	}
	switch {
	case m == nil:
		return nil, nil
	case wrid&wridOp2 != 0:
		return m, m.Op2
	}
	return m, m.Op
}

// bareOp returns the last operation of a chain without a SEND behind it: the
// record's request is its. A kernel peer is told nothing of silent ones.
func (c *Conn) bareOp(m *Msg) (*Msg, *rdmaop.Op) {
	for m != nil && m.Silent && c.k.on {
		if m.priv.chain != nil {
			m = m.priv.chain
			continue
		}
		if m.Op2 != nil {
			return m, m.Op2
		}
		return m, m.Op
	}
	return nil, nil
}

// completeAll retires all records: no work request will touch anything any more.
func (c *Conn) completeAll() {
	for c.sq.head != c.sq.tail {
		c.complete(&c.sq.recs[c.sq.head%uint64(len(c.sq.recs))])
	}
}

// complete retires the oldest record.
func (c *Conn) complete(r *sendRec) {
	rec := *r
	*r = sendRec{}
	c.sq.head++
	c.sq.used -= rec.wrs
	c.sq.reads -= rec.reads
	c.sq.opBytes -= rec.bytes
	if rec.slot {
		c.slots.head++
	}
	if rec.buf != nil {
		c.host.PutSendBuf(rec.buf)
	}
	for m := rec.ops; m != nil; {
		next := m.priv.chain
		m.priv.chain = nil
		if !m.priv.opLocal {
			m.priv.opLocal = true
			c.host.OpLocal(c, m)
		}
		c.unref(m)
		m = next
	}
	if rec.large != nil {
		c.unref(rec.large)
	}
}
