package conn

// Cancel withdraws m as Conn.Cancel does. Bytes that were written may still arrive.
func (c *TCP) Cancel(m *Msg, o Outcome) (later bool) {
	c.calls.called(callCancel)
	p := &m.priv
	if m.isCut() {
		c.cancelCut(p.cut, o)
		return m.isCut()
	}
	if p.list != nil {
		p.list.remove(m)
		c.finish(m, o)
		return false
	}
	if p.state == msgPosted { // half written: the rest has to follow
		p.state, p.outcome = msgEnding, o
		return true
	}
	return false
}

// GiveUp cancels a message whose time limit has passed, as Conn.GiveUp does.
func (c *TCP) GiveUp(m *Msg) (o Outcome, later bool) {
	o = GaveUp
	if !m.priv.posted {
		o = Withdrawn
	}
	return o, c.Cancel(m, o)
}

// CancelMatching withdraws the messages for which match is true.
func (c *TCP) CancelMatching(match func(*Msg) bool, o Outcome) {
	c.calls.called(callCancel)
	for x := c.cuts.runs; x != nil; {
		next := x.next
		if match(x.run) {
			c.cancelCut(x, o)
		}
		x = next
	}
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, list := range []*msgList{&l.out.queue, &l.out.unacked} {
			for m := list.head; m != nil; {
				next := m.priv.next
				if !m.priv.own && !m.isCut() && match(m) {
					c.Cancel(m, o)
				}
				m = next
			}
		}
		if m := l.out.frag; m != nil && !m.priv.own && m.priv.state == msgPosted && match(m) {
			c.Cancel(m, o)
		}
	}
}

// Waiting does nothing: over RDS/TCP there are no internal messages.
func (c *TCP) Waiting(func(*Msg)) {}

// Withdraw does nothing, as Waiting.
func (c *TCP) Withdraw(*Msg) bool { return false }

// cancelCut ends a run of which parts are under way.
func (c *TCP) cancelCut(x *cutRun, o Outcome) {
	run := x.run
	if x.stopped {
		return
	}
	if run.priv.list != nil {
		run.priv.list.remove(run)
	}
	for p := x.first; p != nil; p = p.next {
		if p.priv.list == nil && p.priv.state == msgPosted { // half written: the rest has to follow
			p.priv.state, p.priv.outcome = msgEnding, o
		}
	}
	if all, done := c.cuts.stop(run, o, c.finish); done {
		c.runDone(run, all)
	}
}

// finish gives m back to its owner.
func (c *TCP) finish(m *Msg, o Outcome) {
	p := &m.priv
	p.state = msgIdle
	if p.own {
		c.ownEnded(m, o)
		return
	}
	m.Ended = m.datagrams()
	c.stats.ended(o, m.Ended)
	c.host.MsgDone(c, m, o)
}

// ownEnded takes back a message that the TCP has made itself.
func (c *TCP) ownEnded(m *Msg, o Outcome) {
	switch own := m.Owner.(type) {
	case *runPart:
		if run, all, done := c.cuts.ended(own, o); done {
			c.runDone(run, all)
		}
	case *ownMsg:
		c.own.give(own)
	}
}

// runDone gives back to its owner a run that went in parts.
func (c *TCP) runDone(run *Msg, o Outcome) {
	run.priv.state = msgIdle
	c.stats.ended(o, run.Ended)
	c.host.MsgDone(c, run, o)
}

func (c *TCP) endAll(list *msgList) {
	for list.head != nil {
		m := list.head
		if m.isCut() {
			c.cancelCut(m.priv.cut, Cancelled)
			continue
		}
		list.remove(m)
		c.finish(m, Cancelled)
	}
}
