package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// sendHello posts HELLO, the first SEND; false if that failed. Notices and
// control messages that wait get their sequences now, so that HELLO's notice
// covers them: what this side owes the peer must arrive before the peer
// believes HELLO's ack.
func (c *Conn) sendHello() bool {
	for _, l := range []*msgList{&c.notices, &c.control} {
		for m := l.head; m != nil; m = l.head {
			l.remove(m)
			m.priv.seq = c.nextTx
			c.nextTx++
			c.rtx.push(m)
		}
	}
	notice := uint64(0)
	for m := c.rtx.tail; m != nil; m = m.priv.prev {
		if m.Internal != 0 {
			notice = m.priv.seq
			break
		}
	}
	h := wire.Hello{
		Version:   wire.HelloVersion,
		Features:  features(c.cfg.Attr.Caps),
		Instance:  c.cfg.Instance,
		Ack:       c.rxLast,
		AckInst:   c.peer,
		Notice:    notice,
		MaxSend:   uint32(c.cfg.MaxSend),
		Credits:   uint32(c.cfg.RecvCredits),
		ReadDepth: uint32(c.cfg.ReadDepth),
	}
	c.granted = uint32(c.cfg.RecvCredits)
	slot := c.slot()
	c.txh = wire.Header{Len: wire.HelloLen, DPort: uint16(wire.TypeHello), Flags: wire.FlagInternal}
	c.txh.Put(slot)
	h.Append(slot[:wire.HeaderLen])
	c.postSlot(wire.HeaderLen+wire.HelloLen, sendRec{})
	return c.state == Up
}

var errNoHello = errors.New("the first frame is not HELLO")

// recvHello takes the first SEND of the peer.
func (c *Conn) recvHello(b []byte) error {
	h := &c.rxh
	if err := wire.Parse(b, h); err != nil {
		return err
	}
	if h.Flags != wire.FlagInternal || wire.InternalType(h.DPort) != wire.TypeHello ||
		h.Seq != 0 || int(h.Len) != len(b)-wire.HeaderLen {
		return errNoHello
	}
	hello, err := wire.ParseHello(b[wire.HeaderLen:])
	switch {
	case err != nil:
		return err
	case hello.Instance == 0:
		return errors.New("HELLO without an instance")
	case hello.MaxSend < wire.MinMaxSend:
		return fmt.Errorf("HELLO: largest SEND %d, at least %d", hello.MaxSend, wire.MinMaxSend)
	case hello.Credits < MinCredits || hello.Credits > maxCredits:
		return fmt.Errorf("HELLO: %d credits, want %d to %d", hello.Credits, MinCredits, maxCredits)
	case hello.AckInst == c.cfg.Instance && hello.Ack >= c.nextTx:
		return fmt.Errorf("HELLO acks %d, the next sequence is %d", hello.Ack, c.nextTx)
	}
	c.hello, c.helloSeen = hello, true
	if c.state == Up {
		c.becomeReady()
	}
	return nil
}

// becomeReady sorts what the last connection left behind, now that the peer has
// said what it received.
func (c *Conn) becomeReady() {
	h := &c.hello
	if !c.host.Instance(c, h.Instance) {
		c.deaf = true
		c.fail(ErrStale)
		return
	}
	c.ready = true
	c.deadline = 0
	c.watchFrom()
	c.backoff = 0
	c.maxSend = min(c.cfg.MaxSend, int(h.MaxSend))
	c.readDepth = max(1, min(c.cfg.ReadDepth, int(min(h.ReadDepth, 1<<16))))
	c.credits = h.Credits
	if mutant.On(mutant.SequenceReset) {
		c.nextTx = c.cfg.StartSeq
	}

	restarted := c.peer != 0 && c.peer != h.Instance
	if c.peer != 0 {
		c.untilAsk = askEvery
	}
	if c.peer != h.Instance {
		c.peer = h.Instance
		c.rxLast = 0
		clear(c.refusing)
	}
	c.host.Trace(c, "up", nil)
	c.host.PeerUp(c, restarted)
	if restarted {
		c.forget()
	} else {
		c.resume()
	}
	c.congDirty = c.congMap != nil && (c.congTold || !c.congMap.Empty())
	if restarted {
		c.congTold = false
	}
	c.dirty = true
}

// resume goes on with the same instance of the peer: what it has received is
// covered and settles when its notices are here; operations it has not received
// are dropped; the rest is sent again.
func (c *Conn) resume() {
	// A peer that does not know this instance has nothing to tell it: notices to
	// an earlier one will not come.
	ack := uint64(0)
	c.gate = 0
	if c.hello.AckInst == c.cfg.Instance || mutant.On(mutant.WrongInstance) {
		ack, c.gate = c.hello.Ack, c.hello.Notice
	}
	for m := c.rtx.head; m != nil; {
		next := m.priv.next
		switch {
		case m.priv.seq <= ack:
			c.rtx.remove(m)
			m.priv.state = msgPosted
			c.unacked.push(m)
		case m.opOpen() && mutant.On(mutant.OperationReplayed):
			m.priv.opPosted, m.priv.opLocal = false, false
			m.priv.list.remove(m)
			c.queue.push(m)
		case m.opOpen():
			c.rtx.remove(m)
			c.end(m, Dropped)
		case m.priv.posted:
			m.priv.flags |= wire.FlagRetransmitted
		}
		m = next
	}
	c.ackMax = max(c.ackMax, ack)
	c.settling = true
	if mutant.On(mutant.NoGate) {
		c.gate = 0
	}
	c.checkGate()
}

// forget ends what belonged to the peer's old instance; what was never posted
// is for the new one.
func (c *Conn) forget() {
	for m := c.rtx.head; m != nil; {
		next := m.priv.next
		switch {
		case m.priv.own && m.Internal != 0: // a notice to the old instance
			c.rtx.remove(m)
			c.end(m, Lost)
		case m.priv.opPosted: // ends below
		case m.priv.posted:
			c.rtx.remove(m)
			c.end(m, Lost)
		}
		m = next
	}
	c.endAll(&c.notices, Lost)
	// A refused operation's data went to the old instance. Refused datagrams
	// are still here, and go to the new one.
	c.endPostedOps(Unknown)
	c.settling = false
	c.settleAt = 0
	c.clearCong()
}

// checkGate starts to settle once every notice HELLO spoke of has arrived.
func (c *Conn) checkGate() {
	if c.settling && c.rxLast >= c.gate {
		c.settling = false
		c.settleAt = 0
		c.dirty = true
		c.settle()
	}
}

// settle ends the messages acked so far.
func (c *Conn) settle() { c.settleTo(c.ackMax) }

// settleTo ends the messages up to seq, which the peer has accepted.
func (c *Conn) settleTo(seq uint64) {
	for m := c.unacked.head; m != nil && m.priv.seq <= seq; m = c.unacked.head {
		c.unacked.remove(m)
		c.end(m, Acked)
	}
}

// settleExpired gives up waiting for the fate of posted operations.
func (c *Conn) settleExpired() {
	c.settleAt = 0
	c.endPostedOps(Unknown)
}

// endPostedOps ends every posted operation that has not settled, refused ones
// that wait to be sent again included.
func (c *Conn) endPostedOps(o Outcome) {
	c.CancelMatching(func(m *Msg) bool { return m.priv.opPosted }, o)
}
