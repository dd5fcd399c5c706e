package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// recvKernel takes a SEND, which is one frame.
func (c *Conn) recvKernel(b []byte) error {
	c.stats.RecvFrames++
	c.dirty = true
	if c.own.N > msg.MaxOwing {
		return fmt.Errorf("%d pongs not taken", c.own.N)
	}
	h := &c.in.h
	if err := wire.Parse(b, h); err != nil {
		if errors.Is(err, wire.ErrChecksum) {
			c.stats.RecvDropChecksum++
		}
		return err
	}
	body := b[wire.HeaderLen:]
	switch {
	case len(body) > kernelPiece:
		return fmt.Errorf("a SEND of %d bytes, largest %d", len(b), kernelFrame)
	case h.Ack >= c.out.nextTx:
		return fmt.Errorf("ack %d, the next sequence is %d", h.Ack, c.out.nextTx)
	}
	var err error
	switch {
	case h.SPort == 0 && h.DPort == 0 && len(body) == 0:
		c.stats.AckReceived++
		c.useless(h)
	case h.Flags == wire.FlagCong:
		err = c.recvKernelCong(h, body)
	default:
		err = c.recvKernelMessage(h, body)
	}
	if err != nil {
		return err
	}
	c.handleAck(h.Ack)
	return nil
}

// recvKernelMessage takes a frame of a message.
func (c *Conn) recvKernelMessage(h *wire.Header, body []byte) error {
	if c.k.congGot > 0 {
		return errors.New("a message between the fragments of a congestion map")
	}
	h.FromKernel()
	seq := h.Seq
	if c.in.asm.active || h.Len > kernelPiece {
		// A kernel does not compare flags, nor the incarnations that it has not.
		if c.in.asm.active {
			h.Flags = c.in.asm.h.Flags
		}
		if err := c.recvFragment(h, body); err != nil {
			return err
		}
		if c.in.asm.active {
			return nil
		}
	} else {
		if int(h.Len) != len(body) {
			return fmt.Errorf("message of %d bytes in a frame of %d", h.Len, len(body))
		}
		if err := c.recvMessage(h, body, 0); err != nil {
			return err
		}
	}
	c.k.ack = seq
	return nil
}

// recvKernelCong takes a half of the peer's map.
func (c *Conn) recvKernelCong(h *wire.Header, body []byte) error {
	k := &c.k
	switch {
	case c.in.asm.active:
		return errors.New("a congestion map between the fragments of a message")
	case h.Len != wire.CongLen || len(body) != kernelPiece:
		return fmt.Errorf("congestion map of %d bytes in a frame of %d", h.Len, len(body))
	}
	if k.congRx == nil {
		k.congRx = make([]byte, wire.CongLen)
	}
	k.congGot += copy(k.congRx[k.congGot:], body)
	if k.congGot < wire.CongLen {
		return nil
	}
	k.congGot = 0
	h.Seq, h.SPort, h.DPort = 0, 0, 0
	return c.recvCong(h, k.congRx)
}

// kernelSeq says what a sequence means that is not higher than all before. Only
// what is flagged is a duplicate: a kernel that started anew counts from 1.
func (c *Conn) kernelSeq(h *wire.Header) (old bool, err error) {
	if h.Seq == 0 {
		return false, errors.New("a message without a sequence")
	}
	if h.Flags&wire.FlagRetransmitted == 0 {
		return false, nil
	}
	c.stats.RecvDropOldSeq++
	c.in.arrived.Control++
	c.ack.now = true
	return true, nil
}
