package tcp

import "github.com/rdsd/rdsd/conn/msg"

// Cancel withdraws m as conn.Conn.Cancel does. Bytes that were written may still arrive.
func (c *Conn) Cancel(m *msg.Msg, o msg.Outcome) (later bool) {
	c.calls.Cancel()
	p := &m.Track
	if m.IsCut() {
		c.cancelCut(p.Cut, o)
		return m.IsCut()
	}
	if p.List != nil {
		p.List.Remove(m)
		c.finish(m, o)
		return false
	}
	if p.State == msg.Posted { // half written: the rest has to follow
		p.State, p.Outcome = msg.Ending, o
		return true
	}
	return false
}

// GiveUp cancels a message whose time limit has passed, as conn.Conn.GiveUp does.
func (c *Conn) GiveUp(m *msg.Msg) (o msg.Outcome, later bool) {
	o = msg.GaveUp
	if !m.Track.Posted {
		o = msg.Withdrawn
	}
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true.
func (c *Conn) CancelMatching(match func(*msg.Msg) bool, o msg.Outcome) {
	c.calls.Cancel()
	for x := range c.cuts.All() {
		if match(x.Run) {
			c.cancelCut(x, o)
		}
	}
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, list := range []*msg.List{&l.out.queue, &l.out.unacked} {
			for m := range list.Matching(match) {
				c.Cancel(m, o)
			}
		}
		if m := l.out.frag; m != nil && !m.Track.Own && m.Track.State == msg.Posted && match(m) {
			c.Cancel(m, o)
		}
	}
}

// Waiting does nothing: over RDS/TCP there are no internal messages.
func (c *Conn) Waiting(func(*msg.Msg)) {}

// Withdraw does nothing, as Waiting.
func (c *Conn) Withdraw(*msg.Msg) bool { return false }

// cancelCut ends a run of which parts are under way.
func (c *Conn) cancelCut(x *msg.CutRun, o msg.Outcome) {
	run := x.Run
	if x.Stopped {
		return
	}
	if run.Track.List != nil {
		run.Track.List.Remove(run)
	}
	for p := x.First; p != nil; p = p.Next {
		if p.Track.List == nil && p.Track.State == msg.Posted { // half written: the rest has to follow
			p.Track.State, p.Track.Outcome = msg.Ending, o
		}
	}
	if run, o = c.cuts.Stop(run, o, c.finish); run != nil {
		c.stats.Ended(o, run.Ended)
		c.host.MsgDone(c, run, o)
	}
}

// finish gives m, which is not half written, back to its owner.
func (c *Conn) finish(m *msg.Msg, o msg.Outcome) {
	if m.Track.Own {
		if m, o = c.cuts.TakeBack(m, o, &c.own); m == nil {
			return
		}
	} else {
		m.End()
	}
	c.stats.Ended(o, m.Ended)
	c.host.MsgDone(c, m, o)
}

func (c *Conn) endAll(list *msg.List) {
	for list.Head != nil {
		m := list.Head
		if m.IsCut() {
			c.cancelCut(m.Track.Cut, msg.Cancelled)
			continue
		}
		list.Remove(m)
		c.finish(m, msg.Cancelled)
	}
}
