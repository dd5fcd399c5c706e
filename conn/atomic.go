package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// Between two rdsd an atomic is no work request. Its request travels in the frame of its
// message, and the receiver's daemon carries it out when it accepts the message. So whatever
// makes a message arrive once makes its atomic run once. A message that is refused, or finds
// no socket, has not run its atomic. The result is a notice about the message: it has a
// sequence, is sent again until it is acked, and goes ahead of every ack that covers the
// message. So an ack, also HELLO's, never counts without the result.

// carrying says that the peer's daemon carries out atomics.
func (c *Conn) carrying() bool { return c.link.hello.Features&wire.FeatureCarried != 0 }

// carries says that m, which was not posted yet, will carry its atomic.
func (c *Conn) carries(m *msg.Msg) bool { return c.carrying() && m.Atomic() != nil }

// deliverAtomic takes a whole message that carries an atomic. The atomic runs if the message
// is accepted, and the message is handed up if the atomic may run.
func (c *Conn) deliverAtomic(h *wire.Header, body []byte) {
	if h.Flags&wire.FlagSilent == 0 && h.DPort != 0 && c.refuses(h) {
		c.verdict(h, Refused, 0)
		return
	}
	r := &c.in.atomic
	if st := c.host.AimAtomic(c, h, r); st != wire.AtomicDone {
		c.notRunHere(h, st)
		return
	}
	v, met := c.deliver(h, body)
	old := c.host.RunAtomic(c, r, v == Accepted)
	if v == Accepted {
		c.answerAtomic(h, wire.AtomicDone, old)
	}
	c.verdict(h, v, met)
}

// commitAtomic is deliverAtomic for a message that arrived in fragments and was assembled.
func (c *Conn) commitAtomic(h *wire.Header) {
	a := &c.in.asm
	token := a.token
	a.dst, a.token = nil, nil
	if st := c.host.AimAtomic(c, h, &a.atomic); st != wire.AtomicDone {
		c.host.Abort(c, token)
		c.notRunHere(h, st)
		return
	}
	met := c.host.Commit(c, h, token)
	c.answerAtomic(h, wire.AtomicDone, c.host.RunAtomic(c, &a.atomic, true))
	c.verdict(h, Accepted, met)
}

// notRunHere answers a message that is not handed up because its atomic may not run.
func (c *Conn) notRunHere(h *wire.Header, st wire.AtomicStatus) {
	if st == wire.AtomicNobody {
		c.verdict(h, NoSocket, 0)
		return
	}
	c.answerAtomic(h, st, 0)
}

// skipped carries out what became of a message that arrived in fragments and was not
// assembled.
func (c *Conn) skipped(h *wire.Header) {
	a := &c.in.asm
	if a.v == Accepted && h.Flags&wire.FlagAtomic != 0 { // silent, or a ping
		st, old := c.host.AimAtomic(c, h, &a.atomic), uint64(0)
		if st == wire.AtomicDone {
			old = c.host.RunAtomic(c, &a.atomic, true)
		}
		c.answerAtomic(h, st, old)
	}
	c.verdict(h, a.v, 0)
}

// answerAtomic queues the answer to the atomic that came with h. Like every notice it goes
// out before an ack covers the message.
func (c *Conn) answerAtomic(h *wire.Header, st wire.AtomicStatus, old uint64) {
	o := c.own.Take()
	o.Internal = wire.TypeResult
	r := wire.Result{Notice: wire.Notice{Seq: h.Seq, DPort: h.DPort, SPort: h.SPort, SrcInc: h.SrcInc}, Status: st, Old: old}
	o.Data = r.Append(o.Body[:0])
	o.Track.About = h.Seq
	c.enqueue(&o.Msg)
	if st != wire.AtomicDone {
		c.in.arrived.Control++ // it served no socket
	}
}

// recvResult takes the answer to an atomic. If the atomic ran, its message is acked like any
// other; else the message ends here.
func (c *Conn) recvResult(r *wire.Result) error {
	m, err := c.noticed(wire.TypeResult, &r.Notice)
	if m == nil {
		return err
	}
	if m.Track.Atomic != msg.Carried {
		return fmt.Errorf("ATOMIC_RESULT of %d, whose atomic is not to be answered", r.Seq)
	}
	if r.Status == wire.AtomicDone {
		m.Track.Atomic = msg.Answered
		c.host.AtomicResult(c, m, r.Old)
		return nil
	}
	m.WCStatus, m.Bad = verbs.WCRemAccessErr, m.Atomic()
	if r.Status == wire.AtomicAlign {
		m.WCStatus = verbs.WCRemInvReqErr
	}
	c.out.unacked.Remove(m)
	c.end(m, msg.OpFailed)
	return nil
}

// unanswered ends a message that was acked without the result of its atomic. The connection
// is broken off for it.
func (c *Conn) unanswered(m *msg.Msg) {
	c.settling.unanswered = true
	m.WCStatus, m.Bad = verbs.WCBadRespErr, m.Atomic()
	c.end(m, msg.OpFailed)
}

// dropCarried ends the messages that carry an atomic and that the peer did not accept: it
// does not take atomics in frames any more, for it is reached by another device. ack is
// what it received.
func (c *Conn) dropCarried(ack uint64) {
	match := func(m *msg.Msg) bool {
		return m.Track.Op.Posted() && m.Carried() && (m.Track.Seq == 0 || m.Track.Seq > ack)
	}
	c.cancelIn(&c.out.rtx, match, msg.Dropped)
	c.cancelIn(&c.out.queue, match, msg.Dropped)
	for _, st := range c.stops.keeping() {
		for _, l := range st.lists() {
			c.cancelIn(l, match, msg.Dropped)
		}
	}
}
