package tcp

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// peer is what the peer has said of itself in handshakes.
type peer struct {
	known   bool   // the handshake is done
	bySPort bool   // its source ports say the lanes
	gen     uint32 // its generation, 0 = never said
	answers bool   // it has answered a probe
}

// ping answers one, and takes what a probe says of the peer. Nobody answers
// pongs, nor asks a port that is congested to take one.
func (l *lane) ping() {
	c := l.c
	h := &l.in.h
	c.stats.RecvPing++
	c.arrived.Control++
	if h.IsProbe() {
		c.learn(h)
	}
	if h.SPort == 0 || c.cong.remote.Test(h.SPort) || c.own.N >= msg.MaxPongs {
		return
	}
	c.stats.SendPong++
	l.enqueue(c.newOwn(0, h.SPort))
}

// learn takes what a probe or its answer says. How many lanes there are is
// settled once, but for more.
func (c *Conn) learn(h *wire.Header) {
	x := h.Handshake()
	if x.Gen != 0 {
		if c.peer.gen != 0 && c.peer.gen != x.Gen {
			c.restarted()
		}
		c.peer.gen = x.Gen
	}
	c.peer.bySPort = c.peer.bySPort || x.BySPort
	n := min(h.Paths(), c.cfg.Lanes)
	c.peer.known = true
	if n > c.n {
		c.gate.shut, c.gate.below, c.gate.until = true, c.lanes[0].out.nextTx, c.now+gateNs
		c.n = n
		for i := range c.lanes[1:] { // a socket that moves there must not count backwards
			l := &c.lanes[i+1]
			l.out.nextTx = max(l.out.nextTx, c.lanes[0].out.nextTx)
		}
		c.lanes[0].probe()
	}
	// A kernel that knew more lanes in an earlier life of ours goes on to connect
	// them, and any of them may be the one it now sends by: nothing on the wire
	// tells. So all that come are taken; we send by n.
	if c.taken = max(c.taken, c.n); !c.smaller && h.Paths() > c.taken {
		c.taken = h.Paths()
	}
}

// restarted ends what was sent to the life of the peer that is over, and forgets
// what that one has sent.
func (c *Conn) restarted() {
	c.seen = seqTable{}
	for x := range c.cuts.All() {
		for p := x.First; p != nil; p = p.Next {
			if p.Track.Posted && p.Track.State == msg.Queued {
				c.cancelCut(x, msg.Lost)
				break
			}
		}
	}
	for i := range c.lanes {
		l := &c.lanes[i]
		for m := range l.out.queue.All() {
			if m.Track.Posted {
				l.out.queue.Remove(m)
				c.finish(m, msg.Lost)
			}
		}
	}
}

// probe sends a handshake ping behind all there is.
func (l *lane) probe() {
	l.open++
	l.enqueue(l.c.newOwn(wire.ProbePort, 0))
}

// endHandshake drops the probes, and the answers to probes, that wait. They belong to the connection
// that is gone. The next one begins with a probe of its own, and the peer would take an old answer
// for the answer to its new probe.
func (l *lane) endHandshake() {
	for m := range l.out.queue.All() {
		if m.Track.Own && (m.SPort == wire.ProbePort || m.DPort == wire.ProbePort) {
			l.out.queue.Remove(m)
			l.c.finish(m, msg.Cancelled)
		}
	}
}

// gate keeps messages of one socket in order when the lanes become known: what it
// sent before went on the first lane, and the rest may belong to another one.
type gate struct {
	shut  bool   // other lanes than the first wait until its backlog is through
	below uint64 // the backlog: sequences below this one
	until int64  // from then on acks are enough; 0 once a probe behind it was answered
}

// gateNs is how long the gate waits for the answer to a probe.
const gateNs = 1_000_000_000

// waits says that messages of this lane have to wait for earlier ones of the
// first: those its sockets sent before the lanes were known. They wait until those are
// acked and the answer to a probe behind them says that the peer has read them, or some time
// has passed, if it answers none. The answer alone is not enough: a peer that is not rdsd may
// send answers of a former connection on this one.
func (l *lane) waits() bool {
	c := l.c
	if !c.gate.shut || l.n == 0 {
		return false
	}
	if c.now < c.gate.until {
		return true
	}
	first := &c.lanes[0]
	m := first.out.unacked.Head
	if m == nil {
		m = first.out.frag
	}
	if m == nil {
		m = first.out.queue.Head
	}
	if m != nil && m.Track.Seq < c.gate.below {
		return true
	}
	c.gate.shut = false
	return false
}
