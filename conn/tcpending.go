package conn

// Cancel withdraws m as Conn.Cancel does. Bytes that were written may still arrive.
func (c *TCP) Cancel(m *Msg, o Outcome) (later bool) {
	c.calls.called(callCancel)
	p := &m.priv
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
	for i := range c.lanes {
		l := &c.lanes[i]
		for _, list := range []*msgList{&l.out.queue, &l.out.unacked} {
			for m := list.head; m != nil; {
				next := m.priv.next
				if !m.priv.own && match(m) {
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

// finish gives m back to its owner.
func (c *TCP) finish(m *Msg, o Outcome) {
	p := &m.priv
	p.state = msgIdle
	if p.own {
		c.own.give(m.Owner.(*ownMsg))
		return
	}
	c.stats.ended(o, m.datagrams())
	c.host.MsgDone(c, m, o)
}

func (c *TCP) endAll(list *msgList) {
	for list.head != nil {
		m := list.head
		list.remove(m)
		c.finish(m, Cancelled)
	}
}
