package conn

import (
	"errors"

	"github.com/rdsd/rdsd/conn/wire"
)

// maxBounds: above so many notices owed the peer is not told who accepted its
// messages. Its next message that names no incarnation asks again.
const maxBounds = maxOwing / 2

// tellBound queues the answer to the message of h, which named no incarnation: the
// socket that accepted it. Like every notice it goes out before an ack covers the
// message.
func (c *Conn) tellBound(h *wire.Header, inc uint32) {
	if c.own.n >= maxBounds {
		return
	}
	o := c.own.take()
	o.Internal = wire.TypeBound
	b := wire.Bound{Notice: wire.Notice{Seq: h.Seq, DPort: h.DPort, SPort: h.SPort, SrcInc: h.SrcInc}, DstInc: inc}
	o.Data = b.Append(o.body[:0])
	o.priv.about = h.Seq
	c.enqueue(&o.Msg)
}

// recvBound tells the host which socket has accepted one of its messages.
func (c *Conn) recvBound(b *wire.Bound) error {
	if b.DstInc == 0 {
		return errors.New("BOUND without an incarnation")
	}
	m, err := c.noticed(wire.TypeBound, &b.Notice)
	if m != nil && !m.priv.own {
		c.host.Bound(c, m, b.DstInc)
	}
	return err
}
