package conn

import (
	"fmt"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// dial starts an attempt of ours. The state is Down.
func (c *Conn) dial() {
	if err := c.prepare(true, 0); err != nil {
		c.attemptFailed(err)
		return
	}
	if err := c.host.Dial(c, c.qp, c.private()); err != nil {
		c.connectFailed(err)
	}
}

// accept answers request req, which came with from. The state is Down.
func (c *Conn) accept(req verbs.RequestID, from wire.Private) {
	if err := c.prepare(false, req); err != nil {
		c.reject(req, err)
		c.attemptFailed(err)
		return
	}
	c.setProfile(from)
	if err := c.host.Accept(c, req, c.qp, c.private()); err != nil {
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
	c.ctl, c.qp, c.qpNum, c.active = ctl, qp, qp.Num(), active
	c.retryAt = 0
	c.deadline = c.now + c.cfg.ConnectTimeout
	c.setState(Connecting)
	return nil
}

// HandleRequest takes request req of the peer to connect. The Conn accepts or
// rejects it, or keeps it until the old connection has drained.
func (c *Conn) HandleRequest(now int64, req verbs.RequestID, private []byte) {
	c.calls.called(callDrive)
	c.now = now
	if c.closed {
		c.reject(req, ErrClosed)
		return
	}
	from, err := c.checkPrivate(private)
	if err != nil {
		c.reject(req, err)
		return
	}
	// Of two requests that cross, the smaller address's wins. A kernel rejects
	// ours in any case while its own is under way, so its own must win.
	ours := c.active && from.Ext != 0 && (c.cfg.Local.Less(c.cfg.Remote) || mutant.On(mutant.CrossingUndecided))
	switch c.state {
	case Down:
		c.accept(req, from)
	case Connecting:
		if c.active {
			c.stats.ConnectRaced++
		}
		if ours {
			c.reject(req, nil)
			return
		}
		// Either our attempt lost the race, or the peer gave up the one we
		// accepted before.
		c.abandon(ErrReplaced)
		c.accept(req, from)
	case Up:
		if ours && !c.ready {
			// Most likely a request the peer has abandoned by now.
			c.stats.ConnectRaced++
			c.reject(req, nil)
			return
		}
		c.stats.ListenClosedStale++
		c.pending, c.pendingFrom, c.isPending = req, from, true
		c.fail(ErrReplaced)
	case Error:
		c.rejectPending()
		c.pending, c.pendingFrom, c.isPending = req, from, true
	}
}

func (c *Conn) reject(req verbs.RequestID, why error) {
	if why != nil {
		c.host.Trace(c, "request rejected", why)
	}
	c.host.Reject(req, wire.Rejected())
}

func (c *Conn) rejectPending() {
	if c.isPending {
		c.isPending = false
		c.reject(c.pending, nil)
	}
}

// HandleCM takes an event of the connection manager for this Conn's queue pair.
// Events of its former queue pairs are ignored.
func (c *Conn) HandleCM(now int64, ev *verbs.CMEvent) {
	c.calls.called(callDrive)
	c.now = now
	if c.qp == nil || ev.QP != c.qp {
		return
	}
	switch ev.Type {
	case verbs.CMEstablished:
		c.established(ev.Private)
	case verbs.CMRejected:
		c.broken(rejection(ev.Private))
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
	if c.active {
		from, err := c.checkPrivate(private)
		if err != nil {
			c.backoff = c.cfg.MaxBackoff // it will not change its mind soon
			c.connectFailed(err)
			return
		}
		c.setProfile(from)
	}
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
	if c.sendHello() && c.helloSeen {
		c.becomeReady()
	}
}

// abandon gives up an attempt. Nothing was posted on its queue pair, and
// nothing in sequence can have been received before our HELLO: it needs no
// draining.
func (c *Conn) abandon(why error) {
	c.why = why
	c.closeQP()
	c.setState(Down)
	if c.resetDue {
		c.resetDue = false
		c.host.PeerDown(c, why)
	}
}

// connectFailed ends the attempt under way and plans the next.
func (c *Conn) connectFailed(err error) {
	c.abandon(err)
	c.attemptFailed(err)
}

func (c *Conn) attemptFailed(err error) {
	c.why = err
	c.stats.ConnectFailed++
	c.host.Trace(c, EventConnectFailed, err)
	c.reconnect()
}

// reconnect connects again if there is a reason to: at once the first time
// after a connection was up, later after a random delay below a ceiling that
// doubles (kernel: rds_queue_reconnect).
func (c *Conn) reconnect() {
	if c.state != Down || !c.wanted() {
		return
	}
	if c.backoff == 0 {
		c.backoff = c.cfg.MinBackoff
		c.dial()
		return
	}
	c.retryAt = c.now + 1 + int64(c.cfg.Rand()%uint64(c.backoff))
	c.backoff = min(2*c.backoff, c.cfg.MaxBackoff)
}

// fail breaks an established connection off; it then drains.
func (c *Conn) fail(why error) {
	if c.state != Up {
		return
	}
	c.why = why
	if mutant.On(mutant.MarkBeforeDrain) {
		c.completeAll()
	}
	c.setState(Error)
	c.deadline = c.now + c.cfg.ConnectTimeout
	c.qp.ToError()
	c.stats.ConnReset++
	c.host.Trace(c, "down", why)
}

// protocolError breaks the connection off and stops listening to it. The next
// attempt waits: the peer may do it again.
func (c *Conn) protocolError(err error) {
	if c.deaf {
		return
	}
	c.deaf = true
	c.stats.ProtocolErrors++
	c.backoff = c.cfg.MaxBackoff
	c.broken(fmt.Errorf("%w: %w", ErrProtocol, err))
}

// CQEmpty tells the Conn that the completion queue was polled until it was empty.
// A connection in Error whose work requests have all completed then goes Down.
func (c *Conn) CQEmpty(now int64) {
	c.calls.called(callDrive)
	c.now = now
	if c.state == Error && c.drained() {
		c.down()
	}
}

// down ends a broken connection: its queue pair is destroyed, so nothing
// touches any buffer any more, whatever completions are missing.
func (c *Conn) down() {
	c.abortAssembly()
	c.closeQP()
	c.completeAll()
	c.recs = nil
	if m := c.frag; m != nil {
		c.frag = nil
		if m.priv.state == msgEnding && m.priv.refs == 0 {
			c.finish(m, m.priv.outcome)
		}
	}
	if c.k.on {
		c.kernelDown()
	}
	c.withdrawProbe()
	// What is unacked goes first on the next connection.
	for m := c.unacked.head; m != nil; m = m.priv.next {
		m.priv.state, m.priv.sent = msgQueued, 0
	}
	c.rtx.prepend(&c.unacked)
	if !c.k.on && c.settleAt == 0 && c.cfg.SettleTimeout != 0 && c.hasPostedOps() {
		c.settleAt = c.now + c.cfg.SettleTimeout
	}
	// The peer says anew what is congested. Until then nothing is: who waits for
	// relief sends nothing, and nothing to send means no connection.
	c.clearCong()
	c.setState(Down)
	c.host.PeerDown(c, c.why)
	if c.isPending {
		c.isPending = false
		c.accept(c.pending, c.pendingFrom)
		return
	}
	c.reconnect()
}

// clearCong forgets the peer's congestion map.
func (c *Conn) clearCong() {
	c.releaseDue = true
	if !c.remote.Empty() {
		c.remote.Reset()
		c.host.Congestion(c, &c.remote)
	}
}

// hasPostedOps says that posted operations wait for their fate.
func (c *Conn) hasPostedOps() bool {
	if hasPostedOp(&c.rtx) || hasPostedOp(&c.queue) {
		return true
	}
	for _, st := range c.stops {
		if hasPostedOp(&st.refused) || hasPostedOp(&st.held) {
			return true
		}
	}
	return false
}

func hasPostedOp(l *msgList) bool {
	for m := l.head; m != nil; m = m.priv.next {
		if m.priv.opPosted {
			return true
		}
	}
	return false
}

// closeQP destroys the queue pair and forgets what belonged to it.
func (c *Conn) closeQP() {
	c.host.CloseQP(c, c.qp)
	c.host.PutCtlBuf(c.ctl)
	c.qp, c.ctl = nil, nil
	c.helloSeen, c.ready, c.deaf = false, false, false
	c.settling = false
	c.hello = wire.Hello{}
	c.deadline = 0
	c.credits, c.owed, c.granted = 0, 0, 0
	c.ackNow, c.ackAt, c.ackBytes = false, 0, 0
	c.quiet.lookAt, c.quiet.excused = 0, false
	c.k.prompt, c.k.congTx, c.k.congGot, c.k.early = 0, 0, 0, nil
	c.dirty = false
}
