package conn

import "github.com/rdsd/rdsd/conn/msg"

// Leave gives back the host's messages, because they go another way to the new instance of the peer's
// daemon that another connection has met. Messages that were posted to the old one end as this
// connection's own handshake would end them. Those that the peer does not have end with Returned,
// the last one first. With all, internal messages end, too, with Cancelled, so that nothing wants a
// connection any more. The Conn is not Error.
func (c *Conn) Leave(now int64, instance uint64, all bool) {
	c.calls.Drive()
	c.now = now
	if c.peer != 0 && c.peer != instance {
		c.forget()
	}
	for m := c.out.queue.Tail; m != nil; m = c.giveBack(&c.out.queue, m) {
	}
	for _, st := range c.stops.list {
		for _, l := range []*msg.List{&st.behind, &st.refused} {
			for m := l.Tail; m != nil; m = c.giveBack(l, m) {
			}
		}
	}
	for m := c.out.rtx.Tail; m != nil; m = c.giveBack(&c.out.rtx, m) {
	}
	if !all {
		return
	}
	for _, l := range c.kept() {
		c.endAll(l, msg.Cancelled)
	}
	for _, st := range c.stops.list {
		for _, l := range st.lists() {
			c.endAll(l, msg.Cancelled)
		}
	}
	if c.state == Down {
		c.redial.At, c.redial.Ceiling = 0, 0
	}
	c.dirty = true
}

// giveBack ends m, on l, with Returned, if it is the host's and not internal. It returns the message
// ahead of m.
func (c *Conn) giveBack(l *msg.List, m *msg.Msg) *msg.Msg {
	before := m.Track.Prev
	if m.Internal == 0 && !m.Track.Own && (l != &c.out.rtx || !m.Track.Posted) {
		l.Remove(m)
		c.stats.SendQueued -= uint64(m.Datagrams())
		c.end(m, msg.Returned)
	}
	return before
}
