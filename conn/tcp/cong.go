package tcp

import (
	"errors"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
)

// A kernel tells its congestion map, as it is at that moment, by whichever of its
// lanes is sending (rds_send_xmit). Two maps that come by different lanes may have
// overtaken each other, and nothing on the wire says which one is newer. If the
// older one is believed and a port is congested in it, its senders wait for ever:
// the kernel has told that it is not, and will not again. But a lane that comes up
// is told the map anew. So if no other map has come for a while, a lane is broken
// off. The other mistake, to send to a port that is congested, is not looked for:
// nobody waits, and a kernel takes what comes, at the cost of its memory.

// congDoubt, ns, is how much later than another lane's a map has to be to be newer
// for sure, and how long a doubtful one may be the last.
const congDoubt = 2_000_000_000

// maxDoubts bounds how often congDoubt is doubled while the peer stays congested.
const maxDoubts = 5

var errDoubt = errors.New("conn: congestion maps of several lanes may have overtaken each other: the map has to be told anew")

// doubt is whether the peer's map is its newest.
type doubt struct {
	at int64 // when it ends with a lane, 0: there is none
	n  int   // lanes it has ended since the map was empty
}

// newCong takes a map that came by l.
func (l *lane) newCong(b []byte) {
	c := l.c
	c.stats.CongUpdateReceived++
	c.arrived.Control += conn.CongWork
	if c.cong.remote.Load(b, nil) == nil {
		c.host.Congestion(c, &c.cong.remote)
	}
	l.in.congAt = c.now
	c.cong.doubt.at = 0
	if c.cong.remote.Empty() {
		c.cong.doubt.n = 0
		return
	}
	for i := range c.lanes {
		if o := &c.lanes[i]; o != l && o.in.congAt != 0 && c.now-o.in.congAt < congDoubt {
			c.cong.doubt.at = c.now + congDoubt<<min(c.cong.doubt.n, maxDoubts)
			return
		}
	}
}

// resolve ends a doubt that is due: with the last lane that is up, which has to
// hand over least.
func (c *Conn) resolve() {
	if c.cong.doubt.at == 0 || c.now < c.cong.doubt.at {
		return
	}
	c.cong.doubt.at = 0
	for i := len(c.lanes) - 1; i >= 0; i-- {
		if l := &c.lanes[i]; l.state == conn.Up {
			c.cong.doubt.n++
			l.finishStream(errDoubt)
			return
		}
	}
}

// congestion is what each side knows of the other's congested ports.
type congestion struct {
	remote cong.Map  // the peer's
	doubt  doubt     // whether remote is the newest
	own    *cong.Map // of the local address, the host's
}

// RemoteCong returns the peer's congestion map, as conn.Conn.RemoteCong.
func (c *Conn) RemoteCong() *cong.Map { return &c.cong.remote }

// QueueCong queues the congestion map m of the local address, which changed. It is
// sent on the first lane that is up.
func (c *Conn) QueueCong(m *cong.Map) {
	c.calls.Note()
	c.cong.own = m
	c.stats.CongUpdateQueued++
	c.sendCong()
}

func (c *Conn) sendCong() {
	for i := range c.lanes[:c.taken] {
		if c.lanes[i].state == conn.Up {
			c.lanes[i].out.congDue = true
			return
		}
	}
}
