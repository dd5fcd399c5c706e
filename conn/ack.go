package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// ackDue says when an ack is owed to the peer.
type ackDue struct {
	now   bool
	at    int64 // 0: nothing waits for an ack
	bytes int   // received since the last ack
}

// ackValue is the highest sequence an ordinary frame may ack: not that of a
// message whose notice has not been posted.
func (c *Conn) ackValue() uint64 {
	if m := c.out.notices.head; m != nil && !mutant.On(mutant.AckCoversNotice) {
		return min(c.in.last, m.priv.about-1)
	}
	return c.in.last
}

// piggyback puts ack and credits into c.txh.
func (c *Conn) piggyback() {
	n := min(c.grantable(), 255)
	c.credits.owed -= n
	c.credits.granted += n
	c.out.h.Credit = uint8(n)
	c.out.h.Ack = c.ackValue()
	c.ack.now, c.ack.at, c.ack.bytes = false, 0, 0
}

// sendAck posts a frame that carries nothing but the ack and credits.
func (c *Conn) sendAck() {
	c.out.h = wire.Header{}
	c.piggyback()
	c.out.h.Put(c.slot())
	c.credits.left--
	c.stats.AckSent++
	c.postSlot(wire.HeaderLen, sendRec{})
}

func (c *Conn) askAck(p *msgPriv) {
	switch {
	case p.flags&wire.FlagRetransmitted != 0:
		p.flags |= wire.FlagAckRequired
	case c.out.untilAsk == 0:
		p.flags |= wire.FlagAckRequired
		c.out.untilAsk = askEvery
	default:
		c.out.untilAsk--
	}
}

// askEvery: the first message of a connection asks for an ack, then every one
// behind askEvery others, as the kernel's (send.c, max_unacked_packets). Those
// sent again always ask.
const askEvery = 8
