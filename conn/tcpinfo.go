package conn

import "github.com/rdsd/rdsd/conn/wire"

// Info returns a snapshot: sums over the lanes, and the sequence numbers of the
// first lane.
func (c *TCP) Info() Info {
	i := Info{
		Local: c.cfg.Local, Remote: c.cfg.Remote, State: c.State(), Ready: c.Ready(), Since: c.since,
		Met: c.met, Kernel: true, NextTx: c.lanes[0].out.nextTx, LastRx: c.lanes[0].in.last, LastAck: c.lanes[0].out.lastAck,
		LastError: c.why, RetryAt: c.lanes[0].redial.at, Stats: c.stats,
	}
	for k := range c.lanes {
		l := &c.lanes[k]
		i.Queued += l.out.queue.datagrams()
		i.QueuedBytes += l.out.queue.bytes
		i.Unacked += l.out.unacked.datagrams()
		i.UnackedBytes += l.out.unacked.bytes
		i.Oldest = sooner(i.Oldest, sooner(l.out.unacked.oldest(), l.out.queue.oldest()))
		if l.out.frag != nil {
			i.Unacked++
			i.UnackedBytes += len(l.out.frag.Data)
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
		x := TCPLane{State: l.state, NextTx: l.out.nextTx, LastRx: l.in.last, Queued: l.out.queue.datagrams(), Unacked: l.out.unacked.datagrams()}
		if l.stream != nil {
			n, _ := l.stream.Unacked()
			x.Stream, x.Written, x.TCPs = l.stream, l.out.written, l.out.written-min(uint64(n), l.out.written)
			x.Awaited = x.TCPs
			if m := l.out.unacked.tail; m != nil {
				x.Awaited = m.priv.end
			}
			if x.DataLeft = l.in.left; l.in.left == 0 {
				x.HdrLeft = wire.HeaderLen - l.in.hdrLen
			}
		}
		out = append(out, x)
	}
	return out
}

// Begun says where frames of a lane's stream begin: how many bytes of the one that is
// arriving, and of the one that is being written, are still to come. Of one whose header has
// not come whole it returns what has come.
func (c *TCP) Begun(lane int) (head []byte, in, out int) {
	l := &c.lanes[lane]
	if l.in.left == 0 {
		head = l.in.hdr[:l.in.hdrLen]
	}
	if m := l.out.frag; m != nil {
		out = wire.HeaderLen + len(m.Data) - l.out.fragOff
	}
	return head, l.in.left, out + len(l.out.congRest)
}

// EachStream calls f for the connections that are up.
func (c *TCP) EachStream(f func(Stream)) {
	for i := range c.lanes {
		if s := c.lanes[i].stream; s != nil {
			f(s)
		}
	}
}
