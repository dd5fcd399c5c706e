package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// maxBounds: above so many notices owed the peer is not told who accepted its
// messages. Its next message that names no incarnation asks again.
const maxBounds = msg.MaxOwing / 2

// tellBound queues the answer to the message of h, which named no incarnation and asked: the
// socket that accepted it. Like every notice it goes out before an ack covers the
// message.
func (c *Conn) tellBound(h *wire.Header, inc uint32) {
	if c.own.Sum() >= maxBounds {
		return
	}
	o := c.own.Take()
	o.Internal = wire.TypeBound
	b := wire.Bound{Notice: wire.Notice{Seq: h.Seq, DPort: h.DPort, SPort: h.SPort, SrcInc: h.SrcInc}, DstInc: inc}
	o.Data = b.Append(o.Body[:0])
	o.Track.About = h.Seq
	c.enqueue(&o.Msg)
}

// recvBound tells the host which socket has accepted one of its messages.
func (c *Conn) recvBound(b *wire.Bound) error {
	if b.DstInc == 0 {
		return errors.New("BOUND without an incarnation")
	}
	m, err := c.noticed(wire.TypeBound, &b.Notice)
	if m != nil && !m.Track.Own {
		c.host.Bound(c, m, b.DstInc)
	}
	return err
}

// notify queues a notice about the message of h.
func (c *Conn) notify(t wire.InternalType, h *wire.Header) {
	o := c.own.Take()
	o.Internal = t
	n := wire.Notice{Seq: h.Seq, DPort: h.DPort, SPort: h.SPort, SrcInc: h.SrcInc}
	o.Data = n.Append(o.Body[:0])
	o.Track.About = h.Seq
	c.enqueue(&o.Msg)
}

// noticed returns the message that a notice is about, nil if it is not known: it was
// cancelled meanwhile. Notices come in the order of what they are about, so
// everything before it that is still here was accepted; that also keeps the
// search short whatever the peer sends.
func (c *Conn) noticed(t wire.InternalType, n *wire.Notice) (*msg.Msg, error) {
	if n.Seq == 0 || n.Seq >= c.out.nextTx {
		return nil, fmt.Errorf("%v of %d, the next sequence is %d", t, n.Seq, c.out.nextTx)
	}
	c.settleTo(n.Seq - 1)
	m := c.out.unacked.Head
	if m == nil || m.Track.Seq != n.Seq {
		return nil, nil
	}
	if m == c.out.frag || m.Internal != 0 {
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
	if m.Track.Atomic == msg.Answered {
		return fmt.Errorf("%v of %d, whose atomic has run", t, n.Seq)
	}
	c.out.unacked.Remove(m)
	if t == wire.TypeNoSock || m.Track.Own {
		c.end(m, msg.NoSock)
	} else {
		c.stats.Refusals += uint64(m.Datagrams())
		c.refuse(m)
	}
	return nil
}
