package conn

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
)

// ErrSilent ends a connection whose peer owed an answer and sent nothing for
// Config.Silence.
var ErrSilent = errors.New("conn: the peer is silent")

// silence watches for a peer that no longer answers. Neither TCP nor a device
// notices in useful time that packets vanish, or that the peer's daemon is
// stopped. So while something is outstanding a connection that hears nothing
// asks the peer for an ack, and breaks off when none has come for
// Config.Silence.
type silence struct {
	heardAt int64    // when the peer was heard of last, or when the wait for it began
	lookAt  int64    // when to look at heardAt again, 0 = nothing is outstanding
	probe   *msg.Msg // sent to be acked, and not acked yet
	excused bool     // the host does not read what the peer sends
}

// maxProbeGap is the most time between two probes of a silent peer.
const maxProbeGap = 5_000_000_000

// probeGap is the time between two looks at a connection with something
// outstanding: at least four of them fit into Config.Silence.
func (c *Conn) probeGap() int64 { return max(1, min(c.cfg.Silence/4, maxProbeGap)) }

// heard notes that the peer is alive.
func (c *Conn) heard() { c.quiet.heardAt = c.now }

// watch begins to watch the peer if something is outstanding. A connection that
// is watched already costs one comparison.
func (c *Conn) watch() {
	if c.quiet.lookAt != 0 || c.cfg.Silence <= 0 {
		return
	}
	if c.out.n() > 0 || c.sq.head != c.sq.tail {
		c.watchFrom()
	}
}

// watchFrom gives the peer Config.Silence from now on. look ends the watch if
// nothing is outstanding.
func (c *Conn) watchFrom() {
	c.heard()
	c.quiet.lookAt = 0
	if c.cfg.Silence > 0 {
		c.quiet.lookAt = c.now + c.probeGap()
	}
}

// look breaks a connection off whose peer has been silent for too long, and
// probes a peer that has been silent for a while.
func (c *Conn) look() {
	s := &c.quiet
	if c.cfg.Silence <= 0 || !c.outstanding() && c.sq.emptied() {
		s.lookAt = 0
		return
	}
	// A look that comes late by more than the time between two means that this
	// side slept: what the peer has sent since may not have been read.
	unread := s.excused || c.credits.held || c.now-s.lookAt > c.probeGap()
	if unread {
		c.heard()
	}
	idle := c.now - s.heardAt
	large, small := c.stuck(!unread && idle < c.probeGap())
	if unread {
		c.narrow.stuck = false // until the next look nothing has to be heard
	}
	switch {
	case small:
		s.lookAt = 0
		c.narrowNext()
		c.fail(ErrLarge)
		return
	case idle >= c.cfg.Silence:
		s.lookAt = 0
		if large {
			c.narrowNext()
		}
		c.fail(fmt.Errorf("%w: nothing heard for %v", ErrSilent, time.Duration(idle)))
		return
	case idle >= c.probeGap() && s.probe == nil:
		s.probe = c.ask()
	}
	s.lookAt = min(c.now+c.probeGap(), s.heardAt+c.cfg.Silence)
}

// ask sends a ping from port 0: a peer acks it and does not answer. Without its
// byte a kernel would take it for an ack.
func (c *Conn) ask() *msg.Msg {
	o := c.own.Take()
	o.Data, o.AckNow = o.Body[:1], true
	o.Body[0] = 0
	c.enqueue(&o.Msg)
	return &o.Msg
}

// withdrawProbe ends the probe of a connection that is down: nobody has to be
// connected to for it.
func (c *Conn) withdrawProbe() {
	if m := c.quiet.probe; m != nil && m.Track.List != nil {
		m.Track.List.Remove(m)
		c.end(m, msg.Cancelled)
	}
}

// SetSilence changes Config.Silence to ns nanoseconds, counted from now. A value of 0
// or less sets no limit.
func (c *Conn) SetSilence(now, ns int64) {
	c.calls.Drive()
	c.now, c.cfg.Silence = now, ns
	if c.Ready() {
		c.watchFrom()
	}
}

// Excuse tells the Conn that the host has stopped to read what the peer sends (on),
// or reads it again. While the host does not read, the peer's silence is not
// counted. Afterwards it counts from now.
func (c *Conn) Excuse(now int64, on bool) {
	c.calls.Note()
	c.now, c.quiet.excused = now, on
	c.heard()
	c.narrow.stuck = false
}

// tickReady is Tick of a connection whose handshake is complete.
func (c *Conn) tickReady() {
	look, ask, ack := timer.Due(c.quiet.lookAt, c.now), timer.Due(c.k.prompt, c.now), timer.Due(c.ack.at, c.now)
	if look {
		c.look()
	}
	if ask && c.state == Up {
		c.kernelAsk()
	}
	c.ack.now = c.ack.now || ack
	if look || ask || ack {
		c.Flush(c.now)
	}
}
