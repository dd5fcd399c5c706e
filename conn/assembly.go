package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
)

// assembly is the message that arrives in fragments, if there is one.
type assembly struct {
	active bool
	old    bool        // a duplicate
	skip   bool        // not wanted: v says why
	v      Verdict     // of a skipped message
	h      wire.Header // of the first fragment
	atomic wire.Atomic // that it carries, with wire.FlagAtomic

	traceparent wire.Traceparent // that it has, if h.Traced: each fragment has the same
	dst         []byte
	got         int
	token       any
}

// recvFragment takes a fragment, which is all of its SEND.
func (c *Conn) recvFragment(h *wire.Header, piece []byte) error {
	a := &c.in.asm
	if !a.active {
		if err := c.beginAssembly(h); err != nil {
			return err
		}
	} else if h.Seq != a.h.Seq || h.Len != a.h.Len || h.SPort != a.h.SPort || h.DPort != a.h.DPort ||
		h.Flags != a.h.Flags || h.SrcInc != a.h.SrcInc || h.DstInc != a.h.DstInc ||
		h.Flags&wire.FlagAtomic != 0 && c.in.atomic != a.atomic ||
		h.Traced() != a.h.Traced() || h.Traced() && c.in.traceparent != a.traceparent {
		return fmt.Errorf("fragment of sequence %d between those of %d", h.Seq, a.h.Seq)
	}
	want := min(int(h.Len)-a.got, c.link.maxSend-headLen(h))
	if len(piece) != want {
		return fmt.Errorf("fragment of %d bytes, want %d", len(piece), want)
	}
	if !a.skip {
		copy(a.dst[a.got:], piece)
	}
	if a.got += want; a.got < int(h.Len) {
		return nil
	}
	h = &a.h
	a.active = false
	switch {
	case a.old:
		return nil
	case a.skip:
		c.skipped(h)
	case h.Flags&wire.FlagAtomic != 0:
		c.commitAtomic(h)
	default:
		token := a.token
		a.dst, a.token = nil, nil
		c.verdict(h, Accepted, c.host.Commit(c, h, token))
	}
	c.received(h)
	return nil
}

// beginAssembly takes the first fragment's header.
func (c *Conn) beginAssembly(h *wire.Header) error {
	if h.Len > abi.MaxMessage {
		return fmt.Errorf("message of %d bytes, at most %d", h.Len, abi.MaxMessage)
	}
	if h.Flags&(wire.FlagCong|wire.FlagInternal) != 0 {
		return errors.New("a congestion or internal message in fragments")
	}
	if h.Flags&wire.FlagRun != 0 {
		if err := checkRun(h); err != nil {
			return err
		}
	}
	old, err := c.checkSeq(h)
	if err != nil {
		return err
	}
	c.in.asm = assembly{active: true, old: old, skip: old, h: *h, atomic: c.in.atomic, traceparent: c.in.traceparent}
	a := &c.in.asm
	if old {
		return nil
	}
	if v, done := c.preDeliver(h); done {
		a.skip, a.v = true, v
		return nil
	}
	var v Verdict
	if a.dst, a.token, v = c.host.Begin(c, &a.h); v != Accepted {
		a.dst, a.token = nil, nil
		a.skip, a.v = true, v
		return nil
	}
	if len(a.dst) < int(h.Len) { // the host's mistake must not become ours
		c.host.Abort(c, a.token)
		a.dst, a.token = nil, nil
		a.skip, a.v = true, Refused
	}
	return nil
}

// abortAssembly gives up a message whose rest was lost with the connection.
func (c *Conn) abortAssembly() {
	a := &c.in.asm
	if a.active && !a.skip {
		c.host.Abort(c, a.token)
	}
	*a = assembly{}
}

// ForgetPartial withdraws the message that is arriving in pieces and for which Begin
// returned token, a comparable value. Its memory is the host's again, its other
// pieces are skipped, and the sender gets NOSOCK, or REFUSED if the message is for anybody, and
// sends it again. Another token has no effect.
func (c *Conn) ForgetPartial(token any) {
	c.calls.Forget()
	a := &c.in.asm
	if a.active && !a.skip && a.token == token {
		a.skip, a.v = true, NoSocket
		if a.h.DstInc == 0 && a.h.Anybody() {
			a.v = Refused
		}
		a.dst, a.token = nil, nil
	}
}

// Missing returns how many bytes are still to come of the message for which Begin
// returned token; 0 if that message is not arriving.
func (c *Conn) Missing(token any) int {
	if a := &c.in.asm; a.active && !a.skip && a.token == token {
		return int(a.h.Len) - a.got
	}
	return 0
}
