package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// receiver is the receiving side of a connection.
type receiver struct {
	last   uint64      // highest sequence received
	h      wire.Header // of the frame that is being looked at
	atomic wire.Atomic // that it carries, with wire.FlagAtomic

	traceparent wire.Traceparent // that it has, if h.Traced
	asm         assembly
	refusing    map[uint16]struct{} // ports that refused a message: see preDeliver
	arrived     Arrived
}

// HandleRecv takes one received SEND, whose bytes are buf[:wc.ByteLen]. The
// host posts the buffer again after the call: a credit is owed for it. What
// breaks the protocol breaks the connection.
func (c *Conn) HandleRecv(now int64, wc *verbs.WC, buf []byte) {
	c.calls.Drive()
	c.now = now
	if !c.link.has(wc) || c.link.deaf || c.closed {
		return
	}
	if wc.Status != verbs.WCSuccess {
		if c.state == Up {
			c.fail(fmt.Errorf("%w: receive status %d", ErrCompletion, wc.Status))
		}
		return
	}
	c.heard()
	if int64(wc.ByteLen) < int64(len(buf)) {
		buf = buf[:wc.ByteLen]
	}
	var err error
	switch {
	case c.link.helloSeen && c.link.ready:
		if c.k.on {
			err = c.recvKernel(buf)
			break
		}
		err = c.recvFrames(buf)
	case c.link.helloSeen:
		err = errors.New("a frame before our HELLO")
	case c.state == Error: // broken before the handshake
	case c.state == Connecting && (c.link.active && !wire.IsHello(buf) || !c.link.active && c.k.on):
		err = c.kernelEarly(buf)
	default:
		err = c.recvHello(buf)
	}
	if err == nil && c.settling.unanswered {
		err = errors.New("an ack of an atomic, ahead of its result")
	}
	c.settling.unanswered = false
	if err != nil {
		c.protocolError(err)
	}
}

// recvFrames takes a SEND of one or more frames.
func (c *Conn) recvFrames(b []byte) error {
	if !c.credits.came() {
		return errors.New("a frame without a credit")
	}
	c.stats.RecvFrames++
	c.dirty = true
	if c.own.Over() {
		return fmt.Errorf("%d notices not taken", c.own.Sum())
	}
	if len(b) > c.link.maxSend {
		return fmt.Errorf("a SEND of %d bytes, largest %d", len(b), c.link.maxSend)
	}
	h := &c.in.h
	for off := 0; ; {
		if err := wire.Parse(b[off:], h); err != nil {
			if errors.Is(err, wire.ErrChecksum) {
				c.stats.RecvDropChecksum++
			}
			return err
		}
		if c.credits.left += uint32(h.Credit); c.credits.left > c.link.hello.Credits {
			return fmt.Errorf("%d credits, HELLO said %d", c.credits.left, c.link.hello.Credits)
		}
		if h.Ack >= c.out.nextTx {
			return fmt.Errorf("ack %d, the next sequence is %d", h.Ack, c.out.nextTx)
		}
		head := headLen(h)
		if head != wire.HeaderLen {
			if err := c.parseHead(h, b[off:], head); err != nil {
				return err
			}
		}
		n := int(h.Len)
		if h.Len > uint32(c.link.maxSend-head) {
			if off != 0 {
				return errors.New("a fragment behind another message")
			}
			if err := c.recvFragment(h, b[head:]); err != nil {
				return err
			}
			c.handleAck(h.Ack)
			return nil
		}
		end := off + head + n
		if end > len(b) {
			return fmt.Errorf("message of %d bytes overruns its SEND", n)
		}
		if err := c.recvMessage(h, b[off+head:end], len(b)); err != nil {
			return err
		}
		c.handleAck(h.Ack)
		if off = wire.Pad(end); off >= len(b) {
			return nil
		}
	}
}

// recvMessage takes a whole message out of a SEND of sendLen bytes.
func (c *Conn) recvMessage(h *wire.Header, body []byte, sendLen int) error {
	switch {
	case h.IsAck(sendLen):
		c.stats.AckReceived++
		c.useless(h)
		return nil
	case c.in.asm.active:
		return errors.New("a message between fragments of another")
	case h.Flags&wire.FlagCong != 0:
		return c.recvCong(h, body)
	}
	if h.Flags&wire.FlagRun != 0 {
		if err := checkRun(h); err != nil {
			return err
		}
	}
	if old, err := c.checkSeq(h); old || err != nil {
		return err
	}
	switch {
	case h.Flags&wire.FlagInternal != 0:
		if err := c.recvInternal(h, body); err != nil {
			return err
		}
	case h.Flags&wire.FlagAtomic != 0:
		c.deliverAtomic(h, body)
	default:
		v, met := c.deliver(h, body)
		c.verdict(h, v, met)
	}
	c.received(h)
	return nil
}

// checkSeq says whether h is a duplicate to drop.
func (c *Conn) checkSeq(h *wire.Header) (old bool, err error) {
	if h.Seq > c.in.last {
		return false, nil
	}
	if c.k.on {
		return c.kernelSeq(h)
	}
	if h.Seq == 0 || h.Flags&wire.FlagRetransmitted == 0 {
		return false, fmt.Errorf("sequence %d after %d", h.Seq, c.in.last)
	}
	c.stats.RecvDropOldSeq += datagrams(h)
	c.in.arrived.Control++
	c.ack.now = true
	return true, nil
}

// received notes that the message of h is whole and handed up.
func (c *Conn) received(h *wire.Header) {
	c.in.last = h.Seq
	c.in.arrived.Messages += int(datagrams(h))
	if h.Flags&wire.FlagAckRequired != 0 {
		c.stats.RecvAckRequired++
		c.ack.now = true
	} else if !c.ack.now {
		c.ack.count(wire.HeaderLen+int(h.Len), c.now, &c.cfg)
	}
	if c.settling.on {
		c.checkGate()
	}
}

// deliver hands a whole message up.
func (c *Conn) deliver(h *wire.Header, body []byte) (v Verdict, met uint32) {
	if v, done := c.preDeliver(h); done {
		return v, 0
	}
	return c.host.Deliver(c, h, body)
}

// preDeliver decides about a message that the host is not asked about.
func (c *Conn) preDeliver(h *wire.Header) (v Verdict, done bool) {
	switch {
	case h.Flags&wire.FlagSilent != 0:
		return Accepted, true
	case h.DPort == 0 && !c.cfg.IgnorePings:
		c.pong(h)
		return Accepted, true
	case c.refuses(h):
		return Refused, true
	}
	return Accepted, false
}

// refuses says whether h's port, which has refused a message, goes on refusing.
func (c *Conn) refuses(h *wire.Header) bool {
	if len(c.in.refusing) == 0 {
		return false
	}
	if _, ok := c.in.refusing[h.DPort]; ok {
		if h.Flags&wire.FlagResume == 0 {
			return true
		}
		delete(c.in.refusing, h.DPort)
	}
	return false
}

// verdict carries out what became of a message that is whole. met is the socket that
// accepted it, see Host.Deliver.
func (c *Conn) verdict(h *wire.Header, v Verdict, met uint32) {
	switch v {
	case NoSocket:
		c.stats.RecvDropNoSock += datagrams(h)
		c.in.arrived.Control++
		if c.k.on {
			break
		}
		c.notify(wire.TypeNoSock, h)
	case Refused:
		c.stats.RecvRefused += datagrams(h)
		c.in.arrived.Control++
		if c.k.on { // the host knows that it must not
			break
		}
		c.in.refusing[h.DPort] = struct{}{}
		c.notify(wire.TypeRefused, h)
	default:
		c.stats.RecvQueued += datagrams(h)
		if h.Flags&wire.FlagRun == 0 { // else TookRun has counted them
			c.stats.RecvBytes += uint64(h.Len)
		}
		if met != 0 && h.DstInc == 0 && !c.k.on && !h.Anybody() {
			c.tellBound(h, met)
		}
	}
}

// pong answers a ping. A ping from port 0 has nobody to answer.
func (c *Conn) pong(h *wire.Header) {
	c.in.arrived.Control++
	if h.SPort == 0 || c.cong.remote.Test(h.SPort) || c.own.N >= msg.MaxPongs {
		return
	}
	c.stats.RecvPing++
	c.stats.SendPong++
	o := c.own.Take()
	o.DPort, o.DstInc = h.SPort, h.SrcInc
	c.enqueue(&o.Msg)
}

// recvInternal takes a sequenced internal message.
func (c *Conn) recvInternal(h *wire.Header, body []byte) error {
	if h.SPort != 0 {
		return fmt.Errorf("internal message from port %d", h.SPort)
	}
	c.in.arrived.Control++
	switch t := wire.InternalType(h.DPort); t {
	case wire.TypeHello:
		return errors.New("a second HELLO")
	case wire.TypeNoSock, wire.TypeRefused:
		n, err := wire.ParseNotice(body)
		if err != nil {
			return err
		}
		return c.recvNotice(t, &n)
	case wire.TypeBound:
		b, err := wire.ParseBound(body)
		if err != nil {
			return err
		}
		return c.recvBound(&b)
	case wire.TypeResult:
		r, err := wire.ParseResult(body)
		if err != nil {
			return err
		}
		return c.recvResult(&r)
	case wire.TypeGrant:
		if _, err := wire.ParseGrant(body); err != nil {
			return err
		}
		c.host.Internal(c, t, body)
	case wire.TypeRevoke, wire.TypeRevoked:
		if _, err := wire.ParseRevoke(body); err != nil {
			return err
		}
		c.host.Internal(c, t, body)
	case wire.TypeGrantNak:
		if _, err := wire.ParseGrantNak(body); err != nil {
			return err
		}
		c.host.Internal(c, t, body)
	case wire.TypeAsk:
		if _, err := wire.ParseAsk(body); err != nil {
			return err
		}
		c.host.Internal(c, t, body)
	}
	return nil // unknown types are for later versions
}

// useless counts an ack that says nothing new and returns no credit.
func (c *Conn) useless(h *wire.Header) {
	if h.Ack <= c.settling.acked && h.Credit == 0 {
		c.in.arrived.Control++
	}
}
