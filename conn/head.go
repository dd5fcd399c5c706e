package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// The head of a frame is what is ahead of the payload: the header, the request of an atomic
// that the message carries, and the trace that it belongs to. The last goes to a peer that has
// said in HELLO that it takes one. To other peers the message goes without.

// traces says that m's frames on this connection have its Traceparent.
func (c *Conn) traces(m *msg.Msg) bool {
	return m.Traceparent != nil && !m.Silent && c.link.hello.Features&wire.FeatureTraceparent != 0
}

// headOf is the length of the head of m's frames.
func (c *Conn) headOf(m *msg.Msg) int {
	n := m.HeadLen()
	if c.traces(m) {
		n += wire.TraceparentRoom
	}
	return n
}

// putHead writes the head of a frame of m, whose header is c.out.h, to b.
func (c *Conn) putHead(b []byte, m *msg.Msg) {
	c.out.h.Put(b)
	if m.Carried() {
		r := m.Atomic().Request()
		r.Put(b[wire.HeaderLen:])
	}
	if c.out.h.Traced() {
		m.Traceparent.Put(b[m.HeadLen():])
	}
}

// headLen is the length of the head of a frame with header h.
func headLen(h *wire.Header) int {
	n := wire.HeaderLen
	if h.Flags&wire.FlagAtomic != 0 {
		n += wire.AtomicLen
	}
	if h.Traced() {
		n += wire.TraceparentRoom
	}
	return n
}

// parseHead takes what follows header h in the frame b, whose head has n bytes.
func (c *Conn) parseHead(h *wire.Header, b []byte, n int) error {
	switch {
	case h.Flags&wire.FlagAtomic != 0 && features(c.cfg.Attr.Caps)&wire.FeatureCarried == 0:
		return errors.New("a message with an atomic, which our HELLO did not offer")
	case h.Flags&(wire.FlagCong|wire.FlagRun|wire.FlagInternal) != 0:
		return fmt.Errorf("flags %#x with an atomic or a traceparent", h.Flags)
	case len(b) < n:
		return wire.ErrShort
	}
	if h.Traced() {
		c.in.traceparent = wire.Traceparent(b[n-wire.TraceparentRoom:])
	}
	if h.Flags&wire.FlagAtomic != 0 {
		return wire.ParseAtomic(b[wire.HeaderLen:], &c.in.atomic)
	}
	return nil
}

// Traceparent returns the Traceparent that the message with header h has brought, or nil. The
// Host calls it from inside Deliver, Begin or Commit. What the peer has sent is not checked.
func (c *Conn) Traceparent(h *wire.Header) *wire.Traceparent {
	if !h.Traced() {
		return nil
	}
	return &c.in.traceparent
}
