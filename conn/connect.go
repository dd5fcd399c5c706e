package conn

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/verbs"
)

// dial starts an attempt of ours. The state is Down.
func (c *Conn) dial() {
	if err := c.prepare(true, 0); err != nil {
		c.attemptFailed(err)
		return
	}
	c.narrowExpired()
	c.link.segment = c.narrow.segment
	if err := c.host.Dial(c, c.link.qp, c.private()); err != nil {
		c.connectFailed(err)
	}
}

// prepare takes what a connection needs and moves to Connecting.
func (c *Conn) prepare(active bool, req verbs.RequestID) error {
	ctl := c.host.CtlBuf()
	if ctl == nil {
		return ErrNoBuffer
	}
	qp, err := c.host.NewQP(c, req)
	if err != nil {
		c.host.PutCtlBuf(ctl)
		return err
	}
	c.ctl.buf, c.link.qp, c.link.num, c.link.active = ctl, qp, qp.Num(), active
	c.redial.At = 0
	c.link.deadline = c.now + c.cfg.ConnectTimeout
	c.setState(Connecting)
	return nil
}

// HandleCM takes an event of the connection manager for this Conn's queue pair.
// Events of its former queue pairs are ignored.
func (c *Conn) HandleCM(now int64, ev *verbs.CMEvent) {
	c.calls.Drive()
	c.now = now
	if c.link.qp == nil || ev.QP != c.link.qp {
		return
	}
	switch ev.Type {
	case verbs.CMEstablished:
		c.established(ev.Private)
	case verbs.CMRejected:
		c.broken(c.rejected(ev.Private, ev.Err))
	case verbs.CMUnreachable, verbs.CMConnectError:
		err := ev.Err
		if err == nil {
			err = ErrDisconnected
		}
		c.broken(err)
	case verbs.CMDisconnected:
		err := ErrDisconnected
		if ev.Err != nil {
			err = fmt.Errorf("%w: %w", ErrDisconnected, ev.Err)
		}
		c.broken(err)
	}
}

// broken ends what there is, whatever its state.
func (c *Conn) broken(err error) {
	if c.state == Connecting {
		c.connectFailed(err)
		return
	}
	c.fail(err)
}

// established moves to Up and sends HELLO.
func (c *Conn) established(private []byte) {
	if c.state != Connecting {
		return
	}
	if c.link.active {
		from, err := c.checkPrivate(private)
		if err != nil {
			c.redial.Ceiling = c.cfg.MaxBackoff // it will not change its mind soon
			c.connectFailed(err)
			return
		}
		c.setProfile(from)
		if !c.narrowDialed() {
			c.connectFailed(errNotAtOnce)
			return
		}
	}
	c.narrow.refusedAt, c.narrow.stuck = 0, false
	c.setState(Up)
	c.openSQ()
	switch {
	case c.k.on:
		c.kernelUp()
		return
	case len(c.k.early) > 0:
		c.protocolError(errNoHello)
		return
	}
	if c.sendHello() && c.link.helloSeen {
		c.becomeReady()
	}
}

// abandon gives up an attempt. Nothing was posted on its queue pair, and
// nothing in sequence can have been received before our HELLO: it need
// not empty first.
func (c *Conn) abandon(why error) {
	c.why = why
	c.closeQP()
	c.setState(Down)
	if c.link.resetDue {
		c.link.resetDue = false
		c.host.PeerDown(c, why)
	}
}

// connectFailed ends the attempt under way and plans the next. Its delay counts from the begin of the
// one that failed: a host that has not answered for as long is asked again at once.
func (c *Conn) connectFailed(err error) {
	took := c.now - (c.link.deadline - c.cfg.ConnectTimeout)
	if c.link.active {
		c.narrowFailed(err)
	}
	c.abandon(err)
	c.attemptFailed(err)
	if c.redial.At != 0 {
		c.redial.At = max(c.redial.At-took, c.now+1)
	}
}

func (c *Conn) attemptFailed(err error) {
	c.why = err
	c.stats.ConnectFailed++
	c.host.Trace(c, EventConnectFailed, err)
	if !errors.Is(err, ErrRejected) {
		c.later = 0
	}
	if !errors.Is(err, ErrLater) && c.halt.missed() {
		c.clearCong()
	}
	c.reconnect()
}

// reconnect connects again if there is a reason to: at once the first time
// after a connection was up, then after a delay (redial).
func (c *Conn) reconnect() {
	if c.state != Down || !c.mayDial() {
		return
	}
	if c.redial.Ceiling == 0 {
		c.redial.Ceiling = c.cfg.MinBackoff
		c.dial()
		return
	}
	c.redial.Later(c.now, c.cfg.Rand(), c.cfg.MaxBackoff)
}

// fail breaks an established connection off; its queue pair then empties.
func (c *Conn) fail(why error) {
	if c.state != Up {
		return
	}
	c.why = why
	c.setState(Error)
	c.link.deadline = c.now + c.cfg.ConnectTimeout
	c.link.qp.ToError()
	c.stats.ConnReset++
	c.host.Trace(c, "down", why)
}

// protocolError breaks the connection off and stops listening to it. The next
// attempt waits: the peer may do it again.
func (c *Conn) protocolError(err error) {
	if c.link.deaf {
		return
	}
	c.link.deaf = true
	c.stats.ProtocolErrors++
	c.redial.Ceiling = c.cfg.MaxBackoff
	c.broken(fmt.Errorf("%w: %w", ErrProtocol, err))
}

// CQEmpty tells the Conn that the completion queue was polled until it was empty.
// A connection in Error whose work requests have all completed then goes Down.
func (c *Conn) CQEmpty(now int64) {
	c.calls.Drive()
	c.now = now
	if c.state == Error && c.sq.emptied() {
		c.down()
	}
}

// down ends a broken connection: its queue pair is destroyed, so nothing
// touches any buffer any more, whatever completions are missing.
func (c *Conn) down() {
	c.abortAssembly()
	c.closeQP()
	c.completeAll()
	c.sq.recs = nil
	if m := c.out.frag; m != nil {
		c.out.frag = nil
		if m.Track.State == msg.Ending && m.Track.Refs == 0 {
			c.finish(m, m.Track.Outcome)
		}
	}
	if c.k.on {
		c.kernelDown()
	}
	c.withdrawProbe()
	c.cuts.Rejoin()
	c.out.rewind()
	c.stopAgain()
	if !c.k.on && c.settling.expires == 0 && c.cfg.SettleTimeout != 0 && c.hasPostedOps() {
		c.settling.expires = c.now + c.cfg.SettleTimeout
	}
	// The peer says anew what is congested. Until then nothing is: who waits for
	// relief sends nothing, and nothing to send means no connection. One that is
	// halted is made anew in any case.
	if c.halt.again == 0 {
		c.clearCong()
	}
	c.setState(Down)
	c.lostAt = c.now
	c.host.PeerDown(c, c.why)
	if c.request.waits && !c.halt.on {
		c.request.waits = false
		c.accept(c.request.id, c.request.segment, c.request.from)
		return
	}
	c.reconnect()
}

// closeQP destroys the queue pair and forgets what belonged to it.
func (c *Conn) closeQP() {
	s := c.link.qp.Stats()
	c.served.Add(s.Written, s.Read)
	c.host.CloseQP(c, c.link.qp)
	c.host.PutCtlBuf(c.ctl.buf)
	c.ctl.buf = nil
	c.link.gone()
	c.settling.on = false
	c.credits.gone()
	c.ack = ackDue{}
	c.quiet.lookAt, c.quiet.excused = 0, false
	c.rtt.seq = 0
	c.k.prompt, c.k.congTx, c.k.congGot, c.k.early = 0, 0, 0, nil
	c.dirty = false
}
