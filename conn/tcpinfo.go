package conn

import "github.com/rdsd/rdsd/conn/wire"

// Info returns a snapshot: sums over the lanes, and the sequence numbers of the
// first lane.
func (c *TCP) Info() Info {
	i := Info{
		Local: c.cfg.Local, Remote: c.cfg.Remote, State: c.State(), Ready: c.Ready(), Since: c.since,
		Met: c.met, Kernel: true, NextTx: c.lanes[0].nextTx, LastRx: c.lanes[0].rxLast, LastAck: c.lanes[0].lastAck,
		LastError: c.why, RetryAt: c.lanes[0].retryAt, Stats: c.stats,
	}
	for k := range c.lanes {
		l := &c.lanes[k]
		i.Queued += l.queue.n
		i.QueuedBytes += l.queue.bytes
		i.Unacked += l.unacked.n
		i.UnackedBytes += l.unacked.bytes
		if l.frag != nil {
			i.Unacked++
			i.UnackedBytes += len(l.frag.Data)
		}
	}
	return i
}

// Up returns how many lanes are up.
func (c *TCP) Up() int { return c.up }

// TCPLane is a snapshot of one lane.
type TCPLane struct {
	State           State
	NextTx, LastRx  uint64
	Queued, Unacked int

	Stream   Stream // the lane's connection; nil if there is none
	Written  uint64 // bytes written to the stream
	Awaited  uint64 // the position in the stream up to which messages wait for an ack
	TCPs     uint64 // bytes that the peer's TCP has acknowledged
	HdrLeft  int    // bytes to come of the header that is arriving
	DataLeft int    // bytes to come of the payload that is arriving
}

// Lanes appends a snapshot of every lane in use.
func (c *TCP) Lanes(out []TCPLane) []TCPLane {
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		x := TCPLane{State: l.state, NextTx: l.nextTx, LastRx: l.rxLast, Queued: l.queue.n, Unacked: l.unacked.n}
		if l.stream != nil {
			n, _ := l.stream.Unacked()
			x.Stream, x.Written, x.TCPs = l.stream, l.written, l.written-min(uint64(n), l.written)
			x.Awaited = x.TCPs
			if m := l.unacked.tail; m != nil {
				x.Awaited = m.priv.end
			}
			if x.DataLeft = l.left; l.left == 0 {
				x.HdrLeft = wire.HeaderLen - l.hdrLen
			}
		}
		out = append(out, x)
	}
	return out
}

// EachStream calls f for the connections that are up.
func (c *TCP) EachStream(f func(Stream)) {
	for i := range c.lanes {
		if s := c.lanes[i].stream; s != nil {
			f(s)
		}
	}
}
