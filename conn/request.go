package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// request is a connection that the peer has asked for and that waits until the old
// queue pair is empty.
type request struct {
	waits   bool
	id      verbs.RequestID
	segment int          // see HandleRequest
	from    wire.Private // what it came with
}

// HandleRequest takes request req of the peer to connect. The Conn accepts or
// rejects it, or keeps it until the old connection is empty. segment is the largest TCP segment that
// this side could send on it, 0 if that is not known.
func (c *Conn) HandleRequest(now int64, req verbs.RequestID, segment int, private []byte) {
	c.calls.Drive()
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
	if c.halt.on {
		c.rejectPending()
		c.request = request{waits: true, id: req, segment: segment, from: from}
		return
	}
	// Of two requests that cross, the smaller address's wins. A kernel rejects
	// ours in any case while its own is under way, so its own must win.
	ours := c.link.active && from.Ext != 0 && c.cfg.Local.Less(c.cfg.Remote)
	switch c.state {
	case Down:
		c.accept(req, segment, from)
	case Connecting:
		if c.link.active {
			c.stats.ConnectRaced++
		}
		if ours || c.link.active && from.Ext != 0 && c.tooWide(segment) {
			c.host.Reject(req, wire.Crossed())
			return
		}
		// Either our attempt lost the race, or the peer gave up the one we
		// accepted before.
		c.abandon(ErrReplaced)
		c.accept(req, segment, from)
	case Up:
		if ours && (!c.link.ready || c.now-c.link.readyAt < crossTime) {
			// Most likely a request the peer has abandoned by now. If it is not, the peer
			// tries again, and this side sees the break or crossTime passes.
			c.stats.ConnectRaced++
			c.host.Reject(req, wire.Crossed())
			return
		}
		c.stats.ListenClosedStale++
		c.request = request{waits: true, id: req, segment: segment, from: from}
		c.fail(ErrReplaced)
	case Error:
		c.rejectPending()
		c.request = request{waits: true, id: req, segment: segment, from: from}
	}
}

// crossTime is how long after a connection is ready, which this side has asked for, a request
// of the peer's may arrive that crossed this side's. On a busy host its handshake, above all with
// TLS, ends that much later.
const crossTime = 1_000_000_000

// accept answers request req, which came with from. The state is Down.
func (c *Conn) accept(req verbs.RequestID, segment int, from wire.Private) {
	if from.Ext != 0 && c.tooWide(segment) {
		c.host.Reject(req, wire.Crossed())
		c.dial()
		return
	}
	if err := c.prepare(false, req); err != nil {
		c.reject(req, err)
		c.attemptFailed(err)
		return
	}
	c.narrowExpired()
	c.link.segment = segment
	c.setProfile(from)
	if err := c.host.Accept(c, req, c.link.qp, c.private()); err != nil {
		c.connectFailed(err)
	}
}

func (c *Conn) reject(req verbs.RequestID, why error) {
	if why != nil {
		c.host.Trace(c, EventRequestRejected, why)
	}
	c.host.Reject(req, wire.Rejected(wire.NotSaid))
}

func (c *Conn) rejectPending() {
	if c.request.waits {
		c.request.waits = false
		c.reject(c.request.id, nil)
	}
}
