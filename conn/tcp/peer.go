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

// pings are the handshake pings of a lane.
type pings struct {
	last *msg.Msg // the last one, unless it is something else by now
	open int      // sent, less what was answered
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
	for x := c.cuts.Runs; x != nil; {
		next := x.Next
		for p := x.First; p != nil; p = p.Next {
			if p.Track.Posted && p.Track.State == msg.Queued {
				c.cancelCut(x, msg.Lost)
				break
			}
		}
		x = next
	}
	for i := range c.lanes {
		l := &c.lanes[i]
		for m := l.out.queue.Head; m != nil; {
			next := m.Track.Next
			if m.Track.Posted {
				l.out.queue.Remove(m)
				c.finish(m, msg.Lost)
			}
			m = next
		}
	}
}

// probe sends a handshake ping behind all there is.
func (l *lane) probe() {
	l.pings.open++
	l.pings.last = l.c.newOwn(wire.ProbePort, 0)
	l.enqueue(l.pings.last)
}
