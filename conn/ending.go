package conn

import "github.com/rdsd/rdsd/conn/msg"

// Withdraw ends m, an internal message of the host, with Cancelled and returns true,
// if the peer knows nothing of m. It returns false if m was posted, or if a HELLO
// has announced its sequence number: the peer then waits for it.
func (c *Conn) Withdraw(m *msg.Msg) bool {
	c.calls.Withdraw()
	l := m.Track.List
	if l == nil || m.Track.Posted || m.Track.Seq != 0 && c.state == Up {
		return false
	}
	l.Remove(m)
	c.end(m, msg.Cancelled)
	return true
}

// Cancel withdraws m as CancelMatching does. m was passed to Send and has not
// ended. later is true if m ends when its work requests have completed, and false
// if it has ended when Cancel returns.
func (c *Conn) Cancel(m *msg.Msg, o msg.Outcome) (later bool) {
	c.calls.Cancel()
	l := m.Track.List
	if m.IsCut() {
		c.cancelCut(m.Track.Cut, o)
		return m.IsCut()
	}
	if l == nil {
		return false
	}
	later = m.Track.Refs > 0 || m == c.out.frag
	l.Remove(m)
	c.end(m, o)
	return later
}

// GiveUp cancels a message whose time limit has passed. It ends with Withdrawn if
// it was never sent, else with GaveUp. later is as in Cancel.
func (c *Conn) GiveUp(m *msg.Msg) (o msg.Outcome, later bool) {
	o = m.GivenUp()
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true; they end with
// outcome o. A message that no work request uses ends inside this call, another
// one when its work requests have completed. A message that was posted may still
// arrive.
func (c *Conn) CancelMatching(match func(*msg.Msg) bool, o msg.Outcome) {
	c.calls.Cancel()
	for x := range c.cuts.All() {
		if match(x.Run) {
			c.cancelCut(x, o)
		}
	}
	c.cancelIn(&c.out.rtx, match, o)
	c.cancelIn(&c.out.control, match, o)
	for _, st := range c.stops.keeping() {
		for _, l := range st.lists() {
			c.cancelIn(l, match, o)
		}
	}
	c.cancelIn(&c.out.queue, match, o)
	c.cancelIn(&c.out.unacked, match, o)
}

func (c *Conn) cancelIn(l *msg.List, match func(*msg.Msg) bool, o msg.Outcome) {
	for m := range l.Matching(match) {
		l.Remove(m)
		c.end(m, o)
	}
}

// cancelCut ends a run of which parts are under way.
func (c *Conn) cancelCut(x *msg.CutRun, o msg.Outcome) {
	run := x.Run
	if x.Stopped {
		return
	}
	if run.Track.List != nil {
		run.Track.List.Remove(run)
	}
	c.dirty = true // another may be cut now
	c.end(run, o)
}

// end decides m's outcome. m is on no list. While work requests use its
// memory, or it is half sent, the host hears later.
func (c *Conn) end(m *msg.Msg, o msg.Outcome) {
	p := &m.Track
	if m.IsCut() {
		if m, o = c.cuts.Stop(m, o, c.end); m != nil {
			c.stats.Ended(o, m.Ended)
			c.host.MsgDone(c, m, o)
		}
		return
	}
	c.stops.left(m)
	if p.Refs > 0 || m == c.out.frag {
		p.State, p.Outcome = msg.Ending, o
		return
	}
	c.finish(m, o)
}

// finish gives m, which no work request uses, back to its owner, who may use it again at once.
func (c *Conn) finish(m *msg.Msg, o msg.Outcome) {
	if m.Track.Op.Complete() {
		c.host.OpLocal(c, m)
	}
	if m.Track.Own {
		if m == c.quiet.probe {
			c.quiet.probe = nil
		}
		if m, o = c.cuts.TakeBack(m, o, &c.own); m == nil {
			return
		}
	} else {
		m.End()
	}
	c.stats.Ended(o, m.Ended)
	c.host.MsgDone(c, m, o)
}

// unref notes that a work request on m's memory completed.
func (c *Conn) unref(m *msg.Msg) {
	p := &m.Track
	if p.Refs--; p.Refs == 0 && p.State == msg.Ending && m != c.out.frag {
		c.finish(m, p.Outcome)
	}
}

// endAll ends every message of l.
func (c *Conn) endAll(l *msg.List, o msg.Outcome) {
	for l.Head != nil {
		m := l.Head
		l.Remove(m)
		c.end(m, o)
	}
}
