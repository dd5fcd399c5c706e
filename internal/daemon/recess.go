package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
)

// In a recess every session stands between two requests. What processes send in a recess
// stays in their sockets, whole, until the sessions go on: in this daemon, or in another one
// that has the sockets by then (docs/adr/0032).

// A request of a process that is in progress is broken off: what was made for it is undone, and
// the session, or the successor's, carries it out from its beginning after the recess. So a
// recess does not wait for memory. No process decides how long it takes: a session that does not
// stand at its end is lost.

// errReplaced breaks off requests. It ends those of rdsctl, which cannot go on in the daemon that
// takes over.
var errReplaced = errors.New("the daemon is being replaced by a new one: run the command again")

var (
	// errNotStood ends a session that does not stand.
	errNotStood = errors.New("a planned restart of the daemon could not take this session over: " +
		"the process does not read its answers, or its request could not be broken off")
	// errTooMuch ends a session of which too much would go over.
	errTooMuch = fmt.Errorf("a planned restart of the daemon could not take this session over: "+
		"all processes have more than %d messages and destinations, and its user has most of them", mostRecords)
)

// mostRecords bounds what all processes have in the state that goes over, see engine.Excess. It
// takes some two seconds beside load.
const mostRecords = 1 << 21

const (
	recessTime = 2 * time.Second        // after which sessions are lost that do not stand
	recessSend = 200 * time.Millisecond // how long a process may leave its answers unread in a recess
)

// recess is a recess that has begun.
type recess struct {
	since    time.Time
	breaks   bool          // requests of processes are broken off
	complete bool          // every session stands, and no Send waits any more. Guarded by admission.mu
	over     chan struct{} // closed when the sessions go on
	changed  chan struct{} // has room for one; there is something new to look at
}

// look has recess look at the connections again. p may be nil.
func (p *recess) look() {
	if p == nil {
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// recess stops all sessions and returns when each of them stands and no answer is on its
// way. Requests of rdsctl that wait for something end with errReplaced. breaks says that those of
// processes are broken off, which a successor has to know. Sessions that do not stand after
// recessTime are lost. From then on an answer is sent at once or ends its session.
func (a *admission) recess(ctx context.Context, breaks bool) error {
	return a.recessFor(ctx, breaks, recessTime)
}

func (a *admission) recessFor(ctx context.Context, breaks bool, most time.Duration) error {
	p := &recess{since: time.Now(), breaks: breaks, over: make(chan struct{}), changed: make(chan struct{}, 1)}
	if err := a.beginRecess(p); err != nil {
		return err
	}
	const ticks = 20 // counted, so that a machine that stood still does not end the time
	tick := time.NewTicker(most / ticks)
	defer tick.Stop()
	for passed := 0; ; {
		if a.stood(p, false) {
			return nil
		}
		select {
		case <-p.changed:
			continue
		case <-ctx.Done():
			a.resume()
			return context.Cause(ctx)
		case <-tick.C:
			if passed++; passed >= ticks {
				a.stood(p, true)
				return nil
			}
		}
	}
}

// rests reports whether there is a recess.
func (a *admission) rests() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inRecess != nil
}

func (a *admission) beginRecess(p *recess) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return errShutdown
	case a.inRecess != nil:
		return errors.New("the sessions stand already")
	}
	a.inRecess = p
	for c := range a.open {
		c.hold(p)
	}
	return nil
}

// hold has the session of c stand as soon as it can. Guarded by admission.mu.
func (c *connection) hold(p *recess) {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if c.SetSendTimeout(recessSend); p.complete {
		c.SetSendTimeout(-1)
	}
	if c.interrupt != nil && c.breaks(p) {
		c.interrupt(errReplaced)
	}
}

// breaks reports whether p breaks off c's request. Guarded by admission.mu.
func (c *connection) breaks(p *recess) bool { return p != nil && (p.breaks || c.role == ipc.RoleCtl) }

// stood reports whether every session stands and no answer is on its way. p is complete then.
// late says that it has to be: other sessions are lost.
func (a *admission) stood(p *recess, late bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var moving []*session
	for c, s := range a.open {
		if !c.stands || c.answers.Load() > 0 {
			moving = append(moving, s)
		}
	}
	if len(moving) > 0 && !late {
		return false
	}
	p.complete = true
	for c := range a.open {
		c.SetSendTimeout(-1)
	}
	for _, s := range moving {
		s.lose(errNotStood)
	}
	return true
}

// lose ends the session at once because of why, whatever its goroutine is doing.
func (s *session) lose(why error) {
	if s.closed() {
		return
	}
	s.warn("session lost in a planned restart", why, "request", ipc.Type(s.request.Load()).String())
	_ = s.SendLast(&ipc.Goodbye{Text: why.Error()})
	_ = s.Close() // so that a goodbye in progress comes to its end
	s.end()
}

// resume ends a recess, if there is one: the sessions go on. Their deadlines are later by
// the length of the recess.
func (a *admission) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.inRecess
	if p == nil {
		return
	}
	a.inRecess = nil
	stood := time.Since(p.since)
	for c := range a.open {
		c.stands, c.handed = false, false
		if !c.deadline.IsZero() {
			c.deadline = c.deadline.Add(stood)
		}
		c.SetSendTimeout(0)
		_ = c.SetReadDeadline(c.deadline)
	}
	for c := range a.ending {
		c.let()
	}
	close(p.over)
}

// let ends what unread began. Guarded by admission.mu.
func (c *connection) let() {
	if c.held {
		c.held = false
		c.Let()
	}
}

// limit sets the time until which the next request of c has to come. The zero time is no
// limit.
func (a *admission) limit(c *connection, t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.deadline = t
	if a.inRecess == nil {
		_ = c.SetReadDeadline(t)
	}
}

// next returns the next request of c. In a recess it waits for the end of the recess first.
// Only c's session calls it.
func (a *admission) next(c *connection) (*ipc.Message, error) {
	if m := c.again; m != nil {
		a.stand(c)
		if c.again = nil; c.closed() {
			m.CloseFDs()
			return nil, net.ErrClosed
		}
		return m, nil
	}
	for {
		m, err := c.Recv()
		if err == nil {
			c.request.Store(uint32(m.Body.Type()))
			return m, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !a.stand(c) {
			return nil, err
		}
	}
}

// stand waits until the recess is over or c is closed. It returns false if c has missed its
// own deadline.
func (a *admission) stand(c *connection) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.inRecess
	if p == nil {
		return c.deadline.IsZero() || time.Now().Before(c.deadline)
	}
	c.stands = true
	p.look()
	a.mu.Unlock()
	select {
	case <-p.over:
	case <-c.over:
	}
	a.mu.Lock()
	if a.inRecess == p {
		c.stands = false
	}
	return true
}

// answered ends what the increment of c.answers began.
func (a *admission) answered(c *connection) {
	c.answers.Add(-1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inRecess.look()
}

// interruptible returns a context for a request of c that a recess may end. The caller calls
// done after the request.
func (a *admission) interruptible(c *connection) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.interrupt, c.now = cancel, ctx; c.breaks(a.inRecess) {
		cancel(errReplaced)
	}
	return ctx, func() {
		a.mu.Lock()
		c.interrupt, c.now = nil, nil
		a.mu.Unlock()
		cancel(nil)
	}
}
