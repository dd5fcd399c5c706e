package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
)

// congestion is what each side knows of the other's congested ports.
type congestion struct {
	remote cong.Map  // the peer's
	own    *cong.Map // of the local address, the host's; nil: empty
	due    bool      // own is to be sent
	told   bool      // the peer was sent a map with a bit set
}

// begin notes that a connection is ready. restarted: the peer's daemon is another one
// than on the last connection.
func (g *congestion) begin(restarted bool) {
	g.due = g.own != nil && (g.told || !g.own.Empty())
	if restarted {
		g.told = false
	}
}

// put writes the congestion map into b and notes that it was sent.
func (g *congestion) put(b []byte) {
	g.own.Put(b)
	g.due = false
	g.told = g.told || !g.own.Empty()
}

// RemoteCong returns the peer's congestion map. It belongs to the Conn: it must not
// be changed, and is valid until the next call.
func (c *Conn) RemoteCong() *cong.Map { return &c.cong.remote }

// QueueCong queues the congestion map m of the local address, which changed. The
// Conn keeps m and reads it when it sends: several changes before the next Flush
// are sent as one.
func (c *Conn) QueueCong(m *cong.Map) {
	c.calls.Note()
	c.cong.own = m
	c.cong.due = true
	c.dirty = true
	c.stats.CongUpdateQueued++
}

// clearCong forgets the peer's congestion map.
func (c *Conn) clearCong() {
	c.stops.due = true
	if !c.cong.remote.Empty() {
		c.cong.remote.Reset()
		c.host.Congestion(c, &c.cong.remote)
	}
}

// recvCong takes the peer's congestion map.
func (c *Conn) recvCong(h *wire.Header, body []byte) error {
	if h.Flags != wire.FlagCong || h.Seq != 0 || h.SPort != 0 || h.DPort != 0 || h.Len != wire.CongLen {
		return fmt.Errorf("congestion frame with flags %#x, sequence %d, %d bytes", h.Flags, h.Seq, h.Len)
	}
	err := c.cong.remote.Load(body, func(port uint16, congested bool) {
		if !congested {
			c.stops.freed(port)
		}
	})
	if err != nil {
		return err
	}
	c.stats.CongUpdateReceived++
	c.in.arrived.Control += CongWork
	c.host.Congestion(c, &c.cong.remote)
	return nil
}

// putCong writes the congestion frame.
func (c *Conn) putCong(b []byte) int {
	c.out.h = wire.Header{Len: wire.CongLen, Flags: wire.FlagCong}
	c.piggyback()
	c.out.h.Put(b)
	c.cong.put(b[wire.HeaderLen : wire.HeaderLen+wire.CongLen])
	return wire.HeaderLen + wire.CongLen
}
