package rpc

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rdsd/rdsd/rds"
)

// receive takes the answers until the socket ends.
func (c *Caller) receive(ctx context.Context) {
	for m, err := range c.s.Messages(ctx) {
		if err != nil {
			c.end(err)
			return
		}
		ver, kind, id, ok := parseCommon(m.Payload)
		switch {
		case !ok:
		case ver > versionHeader:
			c.failOne(id, m.Addr, ErrVersion)
		case kind == kindAnswer:
			c.answered(m, id)
		case kind == kindUnknown:
			c.unknown(m)
		case kind == kindKnown:
			c.known(m)
		case kind == kindMark && m.Addr == c.self:
			c.judge()
		}
	}
}

// find returns the call id, if it is one to the server at from.
func (c *Caller) find(id uint64, from netip.AddrPort) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.calls[id]; p != nil && p.to == from {
		return p
	}
	return nil
}

func (c *Caller) failOne(id uint64, from netip.AddrPort, err error) {
	if p := c.find(id, from); p != nil {
		c.finish(p, err)
	}
}

// finish ends p, unless somebody else has.
func (c *Caller) finish(p *pending, err error) {
	if c.take(p) {
		p.err = err
		p.done <- struct{}{}
	}
}

// answered takes an answer or a part of one. What a server sends is checked: a part goes
// behind those before it, and all together are no longer than the caller takes. Only the
// receiver writes to p.buf.
func (c *Caller) answered(m *rds.Received, id uint64) {
	p := c.find(id, m.Addr)
	if p == nil {
		return // ended, or never asked
	}
	a, err := parseAnswer(m.Payload)
	switch {
	case err != nil:
		c.finish(p, &detailed{ErrProtocol, err.Error()})
		return
	case a.header != nil && !p.begun:
		p.header = a.header
	}
	p.arrived = m.Time
	switch {
	case a.status != statusOK:
		c.finish(p, a.err())
		return
	case a.flags == flagWritten:
		if p.mem == nil || a.total > uint64(p.mem.size) || p.begun {
			c.finish(p, &detailed{ErrProtocol, "an answer in memory that was not asked for"})
			return
		}
		p.total, p.written = a.total, true
		c.finish(p, nil)
		return
	case a.offset != uint64(len(p.buf)) || p.begun && a.total != p.total:
		c.finish(p, &detailed{ErrProtocol, "parts of an answer do not fit together"})
		return
	case a.total > uint64(c.o.MaxAnswer) || p.mem != nil && a.total > uint64(p.mem.size):
		c.finish(p, &detailed{ErrTooLarge, "the answer"})
		c.tell(p.to, newIDs(kindCancel, p.id, nil))
		return
	}
	p.total, p.begun = a.total, true
	if p.buf = append(p.buf, a.part...); uint64(len(p.buf)) == a.total {
		c.finish(p, nil)
	}
}

// unknown ends the calls of which the server knows nothing. An answer that it had sent
// came before. It may be the next server there: the socket forgets whom it has met at a
// destination that gives its place to another.
func (c *Caller) unknown(m *rds.Received) {
	ids, err := parseIDs(m.Payload)
	if err != nil {
		return
	}
	for _, id := range ids {
		p := c.find(id, m.Addr)
		switch {
		case p == nil:
		case p.server != 0 && p.server != m.SrcInc:
			c.finish(p, ErrNoSocket)
		default:
			c.finish(p, ErrLost)
		}
	}
}

// known notes which server has the requests.
func (c *Caller) known(m *rds.Received) {
	ids, err := parseIDs(m.Payload)
	if err != nil {
		return
	}
	for _, id := range ids {
		if p := c.find(id, m.Addr); p != nil {
			p.server = m.SrcInc
		}
	}
}

// notices takes the socket's notices until the socket ends.
func (c *Caller) notices(ctx context.Context) {
	var ns [16]rds.Notice
	for {
		if _, err := c.s.Wait(ctx, rds.WaitSet{Notice: true}); err != nil {
			return // the receiver has the error, too
		}
		for n := c.s.Notices(ns[:]); n > 0; n = c.s.Notices(ns[:]) {
			for i := range n {
				c.notice(ctx, &ns[i])
			}
		}
	}
}

func (c *Caller) notice(ctx context.Context, n *rds.Notice) {
	switch n.Kind {
	case rds.Unreachable:
		c.withdraw(ctx, n.To, n.Reason)
	case rds.NotGranted:
		c.fail(ErrNotGranted, func(p *pending) bool { return p.lent && (p.to == n.To || !n.To.IsValid()) })
	case rds.NoSocket, rds.Lost:
		if !n.To.IsValid() { // of several destinations: ask those that are left
			c.ask()
			return
		}
		err := ErrNoSocket
		if n.Kind == rds.Lost {
			err = ErrLost
		}
		c.gone(ctx, n.To, err)
	}
}

// verdict says that a server is gone or not reached, and so that its calls up to an id have
// no answer but one that has arrived.
type verdict struct {
	to   netip.AddrPort
	last uint64
	err  error
}

// gone ends the calls to a server that is gone or not reached with err, behind the answers that have
// arrived and were not received: a message that the socket sends itself arrives behind
// them. gone does not wait, because later notices may make the room that it would wait for.
// Without that room it ends the calls at once.
func (c *Caller) gone(ctx context.Context, to netip.AddrPort, err error) {
	c.mu.Lock()
	c.verdicts.push(verdict{to, c.last, err})
	c.mu.Unlock()
	mark := rds.Message{Payload: newIDs(kindMark, 0, nil), Addr: c.self}
	_, err = c.s.Send(rds.DontWait, &mark)
	switch {
	case errors.Is(err, rds.ErrCongested): // by answers that the receiver is taking
		c.wg.Go(func() {
			if _, err := c.s.Send(ctx, &mark); err != nil {
				c.judge()
			}
		})
	case err != nil:
		c.judge()
	}
}

// judge carries out the oldest verdict.
func (c *Caller) judge() {
	c.mu.Lock()
	if c.verdicts.len() == 0 {
		c.mu.Unlock()
		return
	}
	v := c.verdicts.pop()
	c.mu.Unlock()
	c.fail(v.err, func(p *pending) bool { return p.to == v.to && int64(v.last-p.id) >= 0 })
}

// withdraw ends the calls to a server that is not reached. Their requests are withdrawn,
// so that they do not run when the host comes back. A probe of nothing takes their place:
// as long as it waits, calls fail at once (rds.Socket.SetFailUnreachable). The probe
// itself must not fail so, because what was withdrawn may wait a little longer.
func (c *Caller) withdraw(ctx context.Context, to netip.AddrPort, why rds.Reason) {
	c.sends.Lock()
	defer c.sends.Unlock()
	_ = c.s.CancelSentTo(to) // fails only at the end of the socket
	c.gone(ctx, to, why)
	c.s.SetFailUnreachable(false)
	c.tell(to, newIDs(kindProbe, 0, nil))
	c.s.SetFailUnreachable(true)
}

// probe runs on the timer: it asks for all calls that wait, also for those that have just
// begun, so that none waits longer than Probe for its first question.
func (c *Caller) probe() {
	c.mu.Lock()
	if c.armed = len(c.calls) > 0 && c.ended == nil; c.armed {
		c.timer.Reset(c.o.Probe)
	}
	c.mu.Unlock()
	c.ask()
}

// ask asks servers whether they know the requests that wait.
func (c *Caller) ask() {
	for to, all := range c.sent() {
		for len(all) > 0 {
			n := min(len(all), maxIDs)
			c.tell(to, newIDs(kindProbe, 0, all[:n]))
			all = all[n:]
		}
	}
}

// sent returns the ids of the calls that wait, by server. Their requests were sent: a probe
// that came ahead of its request would have it lost.
func (c *Caller) sent() map[netip.AddrPort][]uint64 {
	ids := map[netip.AddrPort][]uint64{}
	c.sends.Lock()
	defer c.sends.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.calls {
		ids[p.to] = append(ids[p.to], id)
	}
	return ids
}
