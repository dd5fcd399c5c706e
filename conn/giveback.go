package conn

import "github.com/rdsd/rdsd/conn/msg"

// GiveBack gives back the host's messages, because they go another way to the instance of the
// peer's daemon that another connection has met. Messages that were posted to a former one end as
// this connection's own handshake would end them. Those that the peer does not have end with
// Returned, the last one first. Pongs to a former instance end, too. Internal messages stay. The
// Conn is not Error, and its handshake is not in progress.
func (c *Conn) GiveBack(now int64, instance uint64) {
	c.calls.Drive()
	c.now = now
	former := c.peer != instance
	if former && c.peer != 0 {
		c.forget()
	}
	for m := range c.out.queue.All() {
		if former && m.Track.Own && m.Track.Cut == nil {
			c.out.queue.Remove(m)
			c.end(m, msg.Lost)
		}
	}
	c.giveBack(&c.out.queue)
	for _, st := range c.stops.keeping() {
		c.giveBack(&st.behind)
		c.giveBack(&st.refused)
	}
}

// giveBack ends the host's messages on l with Returned.
func (c *Conn) giveBack(l *msg.List) {
	var before *msg.Msg
	for m := l.Tail; m != nil; m = before {
		before = m.Track.Prev
		if m.Track.Own {
			continue
		}
		l.Remove(m)
		c.stats.SendQueued -= uint64(m.Datagrams())
		c.end(m, msg.Returned)
	}
}
