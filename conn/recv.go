package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// A peer can make this side owe it notices and pongs and never take any. Above
// maxPongs pings go unanswered, above maxOwing the connection is broken off.
const (
	maxPongs = 1 << 10
	maxOwing = 1 << 16
)

// HandleRecv takes one received SEND, whose bytes are buf[:wc.ByteLen]. The
// host posts the buffer again after the call: a credit is owed for it. What
// breaks the protocol breaks the connection.
func (c *Conn) HandleRecv(now int64, wc *verbs.WC, buf []byte) {
	c.calls.called(callDrive)
	c.now = now
	if c.qp == nil || wc.QPNum != c.qpNum || c.deaf || c.closed {
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
	case c.helloSeen && c.ready:
		if c.k.on {
			err = c.recvKernel(buf)
			break
		}
		err = c.recvFrames(buf)
	case c.helloSeen:
		err = errors.New("a frame before our HELLO")
	case c.state == Error: // broken before the handshake
	case c.state == Connecting && (c.active && !wire.IsHello(buf) || !c.active && c.k.on):
		err = c.kernelEarly(buf)
	default:
		err = c.recvHello(buf)
	}
	if err != nil {
		c.protocolError(err)
	}
}

// recvFrames takes a SEND of one or more frames.
func (c *Conn) recvFrames(b []byte) error {
	if c.granted == 0 {
		return errors.New("a frame without a credit")
	}
	c.granted--
	c.owed++
	c.stats.RecvFrames++
	c.dirty = true
	if c.own.n > maxOwing {
		return fmt.Errorf("%d notices not taken", c.own.n)
	}
	if len(b) > c.maxSend {
		return fmt.Errorf("a SEND of %d bytes, largest %d", len(b), c.maxSend)
	}
	h := &c.rxh
	for off := 0; ; {
		if err := wire.Parse(b[off:], h); err != nil {
			if errors.Is(err, wire.ErrChecksum) {
				c.stats.RecvDropChecksum++
			}
			return err
		}
		if c.credits += uint32(h.Credit); c.credits > c.hello.Credits {
			return fmt.Errorf("%d credits, HELLO said %d", c.credits, c.hello.Credits)
		}
		if h.Ack >= c.nextTx {
			return fmt.Errorf("ack %d, the next sequence is %d", h.Ack, c.nextTx)
		}
		n := int(h.Len)
		if h.Len > uint32(c.maxSend-wire.HeaderLen) {
			if off != 0 {
				return errors.New("a fragment behind another message")
			}
			if err := c.recvFragment(h, b[wire.HeaderLen:]); err != nil {
				return err
			}
			c.handleAck(h.Ack)
			return nil
		}
		end := off + wire.HeaderLen + n
		if end > len(b) {
			return fmt.Errorf("message of %d bytes overruns its SEND", n)
		}
		if err := c.recvMessage(h, b[off+wire.HeaderLen:end], len(b)); err != nil {
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
	case c.asm.active:
		return errors.New("a message between fragments of another")
	case h.Flags&wire.FlagCong != 0:
		return c.recvCong(h, body)
	}
	if old, err := c.checkSeq(h); old || err != nil {
		return err
	}
	if h.Flags&wire.FlagInternal != 0 {
		if err := c.recvInternal(h, body); err != nil {
			return err
		}
	} else {
		v, met := c.deliver(h, body)
		c.verdict(h, v, met)
	}
	c.received(h)
	return nil
}

// checkSeq says whether h is a duplicate to drop.
func (c *Conn) checkSeq(h *wire.Header) (old bool, err error) {
	if h.Seq > c.rxLast || mutant.On(mutant.DuplicatesTaken) {
		return false, nil
	}
	if c.k.on {
		return c.kernelSeq(h)
	}
	if h.Seq == 0 || h.Flags&wire.FlagRetransmitted == 0 {
		return false, fmt.Errorf("sequence %d after %d", h.Seq, c.rxLast)
	}
	c.stats.RecvDropOldSeq++
	c.arrived.Control++
	c.ackNow = true
	return true, nil
}

// received notes that the message of h is whole and handed up.
func (c *Conn) received(h *wire.Header) {
	c.rxLast = h.Seq
	c.arrived.Messages++
	if h.Flags&wire.FlagAckRequired != 0 {
		c.stats.RecvAckRequired++
		c.ackNow = true
	} else if !c.ackNow {
		if c.ackBytes += wire.HeaderLen + int(h.Len); c.ackBytes >= c.cfg.AckBytes {
			c.ackNow = true
		} else if c.ackAt == 0 {
			c.ackAt = c.now + c.cfg.AckDelay
		}
	}
	if c.settling {
		c.checkGate()
	}
}

// handleAck retires what the peer has received, once the body that came with
// the ack has been handled.
func (c *Conn) handleAck(ack uint64) {
	if ack > c.ackMax {
		c.ackMax = ack
		if !c.settling {
			c.settle()
		}
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
	}
	if len(c.refusing) != 0 {
		if _, ok := c.refusing[h.DPort]; ok {
			if h.Flags&wire.FlagResume == 0 {
				return Refused, true
			}
			delete(c.refusing, h.DPort)
		}
	}
	return Accepted, false
}

// verdict carries out what became of a message that is whole. met is the socket that
// accepted it, see Host.Deliver.
func (c *Conn) verdict(h *wire.Header, v Verdict, met uint32) {
	switch v {
	case NoSocket:
		c.stats.RecvDropNoSock++
		c.arrived.Control++
		if c.k.on || mutant.On(mutant.NoSockNotSent) {
			break
		}
		c.notify(wire.TypeNoSock, h)
	case Refused:
		c.stats.RecvRefused++
		c.arrived.Control++
		if c.k.on { // the host knows that it must not
			break
		}
		c.refusing[h.DPort] = struct{}{}
		c.notify(wire.TypeRefused, h)
	default:
		c.stats.RecvQueued++
		c.stats.RecvBytes += uint64(h.Len)
		if met != 0 && h.DstInc == 0 && !c.k.on {
			c.tellBound(h, met)
		}
	}
}

// notify queues a notice about the message of h.
func (c *Conn) notify(t wire.InternalType, h *wire.Header) {
	o := c.own.take()
	o.Internal = t
	n := wire.Notice{Seq: h.Seq, DPort: h.DPort, SPort: h.SPort, SrcInc: h.SrcInc}
	o.Data = n.Append(o.body[:0])
	o.priv.about = h.Seq
	c.enqueue(&o.Msg)
}

// pong answers a ping. A ping from port 0 has nobody to answer.
func (c *Conn) pong(h *wire.Header) {
	c.arrived.Control++
	if h.SPort == 0 || c.remote.Test(h.SPort) || c.own.n >= maxPongs {
		return
	}
	c.stats.RecvPing++
	c.stats.SendPong++
	o := c.own.take()
	o.DPort, o.DstInc = h.SPort, h.SrcInc
	c.enqueue(&o.Msg)
}

// recvCong takes the peer's congestion map.
func (c *Conn) recvCong(h *wire.Header, body []byte) error {
	if h.Flags != wire.FlagCong || h.Seq != 0 || h.SPort != 0 || h.DPort != 0 || h.Len != wire.CongLen {
		return fmt.Errorf("congestion frame with flags %#x, sequence %d, %d bytes", h.Flags, h.Seq, h.Len)
	}
	if err := c.remote.Load(body, nil); err != nil {
		return err
	}
	c.stats.CongUpdateReceived++
	c.arrived.Control += congWork
	c.releaseDue = true
	c.host.Congestion(c, &c.remote)
	return nil
}

// recvInternal takes a sequenced internal message.
func (c *Conn) recvInternal(h *wire.Header, body []byte) error {
	if h.SPort != 0 {
		return fmt.Errorf("internal message from port %d", h.SPort)
	}
	c.arrived.Control++
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
	}
	return nil // unknown types are for later versions
}

// noticed returns the message that a notice is about, nil if it is not known: it was
// cancelled meanwhile. Notices come in the order of what they are about, so
// everything before it that is still here was accepted; that also keeps the
// search short whatever the peer sends.
func (c *Conn) noticed(t wire.InternalType, n *wire.Notice) (*Msg, error) {
	if n.Seq == 0 || n.Seq >= c.nextTx {
		return nil, fmt.Errorf("%v of %d, the next sequence is %d", t, n.Seq, c.nextTx)
	}
	c.settleTo(n.Seq - 1)
	m := c.unacked.head
	if m == nil || m.priv.seq != n.Seq {
		return nil, nil
	}
	if m == c.frag || m.Internal != 0 {
		return nil, fmt.Errorf("%v of %d, which is not a message sent whole", t, n.Seq)
	}
	return m, nil
}

// recvNotice ends the message that found no socket, or keeps the one that was
// refused.
func (c *Conn) recvNotice(t wire.InternalType, n *wire.Notice) error {
	m, err := c.noticed(t, n)
	if m == nil {
		return err
	}
	c.unacked.remove(m)
	if t == wire.TypeNoSock || m.priv.own || mutant.On(mutant.RefusedDropped) {
		c.end(m, NoSock)
	} else {
		c.refused(m)
	}
	return nil
}
