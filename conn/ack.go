package conn

import "github.com/rdsd/rdsd/conn/wire"

// ackDue says when an ack is owed to the peer.
type ackDue struct {
	now   bool
	at    int64 // 0: nothing waits for an ack
	bytes int   // received since the last ack
}

// count notes that n bytes came that need not be acked at once.
func (a *ackDue) count(n int, now int64, cfg *Config) {
	if a.bytes += n; a.bytes >= cfg.AckBytes {
		a.now = true
	} else if a.at == 0 {
		a.at = now + cfg.AckDelay
	}
}

// ackValue is the highest sequence an ordinary frame may ack: not that of a
// message whose notice has not been posted.
func (c *Conn) ackValue() uint64 {
	if m := c.out.notices.Head; m != nil {
		return min(c.in.last, m.Track.About-1)
	}
	return c.in.last
}

// piggyback puts ack and credits into c.out.h.
func (c *Conn) piggyback() {
	c.out.h.Credit = c.credits.give()
	c.out.h.Ack = c.ackValue()
	c.ack = ackDue{}
}

// sendAck posts a frame that carries nothing but the ack and credits.
func (c *Conn) sendAck() {
	c.out.h = wire.Header{}
	c.piggyback()
	c.out.h.Put(c.ctl.next())
	c.credits.left--
	c.stats.AckSent++
	c.postCtl(wire.HeaderLen, sendRec{})
}

// lastAck posts the ack that is owed when the Conn is closed, so that the peer does not take what has
// arrived for lost. It reports whether the connection has to stay until the last ack has gone out: this
// one, or one that was posted before.
func (c *Conn) lastAck() bool {
	if !c.link.ready || c.k.on {
		return false
	}
	if owed := c.ack.now || c.ack.at != 0; owed && c.out.frag == nil && c.canSend() {
		c.sendAck()
	}
	c.link.deadline = c.now + c.cfg.ConnectTimeout
	return c.state == Up && !c.sq.emptied()
}
