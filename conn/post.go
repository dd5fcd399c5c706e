package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// openSQ sets up the bookkeeping for a fresh queue pair. One place in the
// send queue stays free for the marker.
func (c *Conn) openSQ() {
	size := c.cfg.MaxSendWR
	if q := c.link.qp.Cap().MaxSendWR; q > 0 && (size <= 0 || q < size) {
		size = q
	}
	c.sq.open(size - 1)
	c.ctl.open(c.sq.maxRecs)
}

// room says how many work requests may still be posted; the last of them must
// be a SEND.
func (c *Conn) room() int {
	if c.ctl.full() {
		return 0
	}
	return c.sq.room()
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
	c.sq.add(&rec)
	if rec.ctl {
		c.ctl.tail++
	}
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

// HandleSend takes a send completion.
func (c *Conn) HandleSend(now int64, wc *verbs.WC) {
	c.calls.Drive()
	c.now = now
	if !c.link.has(wc) {
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
		r := c.sq.at(c.sq.head)
		if c.k.on && c.k.placed && wc.Status == verbs.WCSuccess {
			c.kernelPlaced(r)
		}
		if r.reads > 0 && wc.Status == verbs.WCSuccess { // the peer's device has answered them
			c.heard()
		}
		c.complete()
	}
	c.dirty = true
	if c.closed && c.state == Up && c.sq.emptied() {
		c.fail(ErrClosed) // the ack of lastAck has gone out
	}
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
		if m, op := c.sq.opOf(wc.WRID, c.k.on); m != nil && m.Track.State == msg.Posted {
			m.WCStatus, m.Bad = wc.Status, op
			c.out.unacked.Remove(m)
			c.end(m, msg.OpFailed)
		}
	}
	if c.state == Up {
		c.fail(fmt.Errorf("%w: status %d", ErrCompletion, wc.Status))
	}
}

// completeAll retires all records: no work request will touch anything any more.
func (c *Conn) completeAll() {
	for c.sq.head != c.sq.tail {
		c.complete()
	}
}

// complete retires the oldest record.
func (c *Conn) complete() {
	rec := c.sq.retire()
	if rec.ctl {
		c.ctl.head++
	}
	if rec.buf != nil {
		c.host.PutSendBuf(rec.buf)
	}
	for m := rec.ops; m != nil; {
		next := m.Track.Chain
		m.Track.Chain = nil
		if m.Track.Op.Complete() {
			c.host.OpLocal(c, m)
		}
		c.unref(m)
		m = next
	}
	if rec.large != nil {
		c.unref(rec.large)
	}
}
