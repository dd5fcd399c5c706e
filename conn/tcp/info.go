package tcp

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/wire"
)

// Info returns a snapshot: sums over the lanes, and the sequence numbers of the
// first lane.
func (c *Conn) Info() conn.Info {
	i := conn.Info{
		Local: c.cfg.Local, Remote: c.cfg.Remote, State: c.State(), Ready: c.Ready(), Since: c.since,
		Met: c.met, Kernel: true, NextTx: c.lanes[0].out.nextTx, LastRx: c.lanes[0].in.last, LastAck: c.lanes[0].out.lastAck,
		LastError: c.why, RetryAt: c.lanes[0].redial.At, Stats: c.stats,
	}
	for k := range c.lanes {
		l := &c.lanes[k]
		i.Queued += l.out.queue.Datagrams()
		i.QueuedBytes += l.out.queue.Bytes
		i.Unacked += l.out.unacked.Datagrams()
		i.UnackedBytes += l.out.unacked.Bytes
		i.Oldest = timer.Sooner(i.Oldest, timer.Sooner(l.out.unacked.Oldest(), l.out.queue.Oldest()))
		if l.out.frag != nil {
			i.Unacked++
			i.UnackedBytes += len(l.out.frag.Data)
		}
	}
	return i
}

// Up returns how many lanes are up.
func (c *Conn) Up() int { return c.up }

// Lane is a snapshot of one lane.
type Lane struct {
	State           conn.State
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
func (c *Conn) Lanes(out []Lane) []Lane {
	for i := range c.lanes[:c.taken] {
		l := &c.lanes[i]
		x := Lane{State: l.state, NextTx: l.out.nextTx, LastRx: l.in.last, Queued: l.out.queue.Datagrams(), Unacked: l.out.unacked.Datagrams()}
		if l.stream != nil {
			n, _ := l.stream.Unacked()
			x.Stream, x.Written, x.TCPs = l.stream, l.out.written, l.out.written-min(uint64(n), l.out.written)
			x.Awaited = x.TCPs
			if m := l.out.unacked.Tail; m != nil {
				x.Awaited = m.Track.End
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
func (c *Conn) Begun(lane int) (head []byte, in, out int) {
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
func (c *Conn) EachStream(f func(Stream)) {
	for i := range c.lanes {
		if s := c.lanes[i].stream; s != nil {
			f(s)
		}
	}
}

// TakeArrived returns what has arrived since the last call of TakeArrived.
func (c *Conn) TakeArrived() (a conn.Arrived) {
	a, c.arrived = c.arrived, conn.Arrived{}
	return a
}
