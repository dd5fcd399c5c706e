package conn

import "github.com/rdsd/rdsd/internal/mutant"

// Withdraw ends m, an internal message of the host, with Cancelled and returns true,
// if the peer knows nothing of m. It returns false if m was posted, or if a HELLO
// has announced its sequence number: the peer then waits for it.
func (c *Conn) Withdraw(m *Msg) bool {
	c.calls.called(callWithdraw)
	l := m.priv.list
	if l == nil || m.priv.posted || m.priv.seq != 0 && c.state == Up {
		return false
	}
	l.remove(m)
	c.end(m, Cancelled)
	return true
}

// Cancel withdraws m as CancelMatching does. m was passed to Send and has not
// ended. later is true if m ends when its work requests have completed, and false
// if it has ended when Cancel returns.
func (c *Conn) Cancel(m *Msg, o Outcome) (later bool) {
	c.calls.called(callCancel)
	l := m.priv.list
	if m.isCut() {
		c.cancelCut(m.priv.cut, o)
		return m.isCut()
	}
	if l == nil {
		return false
	}
	later = m.priv.refs > 0 || m == c.out.frag
	l.remove(m)
	c.end(m, o)
	return later
}

// GiveUp cancels a message whose time limit has passed. It ends with Withdrawn if
// it was never sent, else with GaveUp. later is as in Cancel.
func (c *Conn) GiveUp(m *Msg) (o Outcome, later bool) {
	o = m.GivenUp()
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true; they end with
// outcome o. A message that no work request uses ends inside this call, another
// one when its work requests have completed. A message that was posted may still
// arrive.
func (c *Conn) CancelMatching(match func(*Msg) bool, o Outcome) {
	c.calls.called(callCancel)
	for x := c.cuts.runs; x != nil; {
		next := x.next
		if match(x.run) {
			c.cancelCut(x, o)
		}
		x = next
	}
	c.cancelIn(&c.out.rtx, match, o)
	c.cancelIn(&c.out.control, match, o)
	for _, st := range c.stops.list {
		for _, l := range st.lists() {
			c.cancelIn(l, match, o)
		}
	}
	c.cancelIn(&c.out.queue, match, o)
	c.cancelIn(&c.out.unacked, match, o)
}

func (c *Conn) cancelIn(l *msgList, match func(*Msg) bool, o Outcome) {
	for m := l.head; m != nil; {
		next := m.priv.next
		if !m.priv.own && !m.isCut() && match(m) {
			l.remove(m)
			c.end(m, o)
		}
		m = next
	}
}

// cancelCut ends a run of which parts are under way.
func (c *Conn) cancelCut(x *cutRun, o Outcome) {
	run := x.run
	if x.stopped {
		return
	}
	if run.priv.list != nil {
		run.priv.list.remove(run)
	}
	c.dirty = true // another may be cut now
	c.end(run, o)
}

// end decides m's outcome. m is on no list. While work requests use its
// memory, or it is half sent, the host hears later.
func (c *Conn) end(m *Msg, o Outcome) {
	p := &m.priv
	if m.isCut() {
		if all, done := c.cuts.stop(m, o, c.end); done {
			c.runDone(m, all)
		}
		return
	}
	c.stops.left(m)
	if (p.refs > 0 || m == c.out.frag) && !mutant.On(mutant.CancelEarly) {
		p.state, p.outcome = msgEnding, o
		return
	}
	c.finish(m, o)
}

// finish gives m back to its owner, who may use it again at once.
func (c *Conn) finish(m *Msg, o Outcome) {
	p := &m.priv
	if p.opPosted && !p.opLocal {
		p.opLocal = true
		c.host.OpLocal(c, m)
	}
	p.state = msgIdle
	if p.own {
		c.ownEnded(m, o)
		return
	}
	m.Ended = m.datagrams()
	c.stats.ended(o, m.Ended)
	c.host.MsgDone(c, m, o)
}

// ownEnded takes back a message that the Conn has made itself.
func (c *Conn) ownEnded(m *Msg, o Outcome) {
	switch own := m.Owner.(type) {
	case *runPart:
		if run, all, done := c.cuts.ended(own, o); done {
			c.runDone(run, all)
		}
	case *ownMsg:
		if own == c.quiet.probe {
			c.quiet.probe = nil
		}
		c.own.give(own)
	}
}

// runDone gives back to its owner a run that went in parts.
func (c *Conn) runDone(run *Msg, o Outcome) {
	run.priv.state = msgIdle
	c.stats.ended(o, run.Ended)
	c.host.MsgDone(c, run, o)
}

// unref notes that a work request on m's memory completed.
func (c *Conn) unref(m *Msg) {
	p := &m.priv
	if p.refs--; p.refs == 0 && p.state == msgEnding && m != c.out.frag {
		c.finish(m, p.outcome)
	}
}

// endAll ends every message of l.
func (c *Conn) endAll(l *msgList, o Outcome) {
	for l.head != nil {
		m := l.head
		l.remove(m)
		c.end(m, o)
	}
}
