package conn

import "github.com/rdsd/rdsd/conn/wire"

// Info returns a snapshot: sums over the lanes, sequences of the first.
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

	// Of its connection, if there is one, in bytes since it came up: what was
	// written, up to where messages wait for an acknowledgement, what the peer's TCP
	// has acknowledged; and what is missing of the header or payload coming in.
	Stream                 Stream
	Written, Awaited, TCPs uint64
	HdrLeft, DataLeft      int
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
