package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/mutant"
)

// In a recess every session stands between two requests. What processes send in a recess
// stays in their sockets, whole, until the sessions go on: in this daemon, or in another one
// that has the sockets by then (docs/adr/0032).

// errReplaced ends what cannot go on in the daemon that takes over.
var errReplaced = errors.New("the daemon is being replaced by a new one: run the command again")

const (
	recessTime = 8 * time.Second // how long requests in progress may take when a recess begins
	recessSend = time.Second     // how long a process may leave its answers unread in a recess
)

// recess is a recess that has begun.
type recess struct {
	since   time.Time
	over    chan struct{} // closed when the sessions go on
	changed chan struct{} // has room for one; there is something new to look at
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
// way. Requests of rdsctl that wait for something end with errReplaced. If a request takes
// longer than recessTime, the error names its process, and the sessions go on.
func (a *admission) recess(ctx context.Context) error { return a.recessFor(ctx, recessTime) }

func (a *admission) recessFor(ctx context.Context, most time.Duration) error {
	p := &recess{since: time.Now(), over: make(chan struct{}), changed: make(chan struct{}, 1)}
	if err := a.beginRecess(p); err != nil {
		return err
	}
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		c := a.moving()
		if c == nil {
			return nil
		}
		select {
		case <-p.changed:
			continue
		case <-ctx.Done():
			a.resume()
			return context.Cause(ctx)
		case <-late.C:
			a.resume()
			return fmt.Errorf("process %d of uid %d: its request %v takes longer than %v: try again when it is done",
				c.id.PID, c.id.UID, ipc.Type(c.request.Load()), most)
		}
	}
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
		c.hold()
	}
	return nil
}

// hold has the session of c stand as soon as it can. Guarded by admission.mu.
func (c *connection) hold() {
	_ = c.SetReadDeadline(time.Unix(1, 0))
	c.SetSendTimeout(recessSend)
	if c.interrupt != nil {
		c.interrupt(errReplaced)
	}
}

// moving returns a connection whose session does not stand, or that has an answer on its
// way. It returns nil if there is none.
func (a *admission) moving() *connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.open {
		if !c.stands || c.answers.Load() > 0 && !mutant.On(mutant.RecessAnswers) {
			return c
		}
	}
	return nil
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
		_ = c.SetReadDeadline(c.deadline)
		c.SetSendTimeout(0)
	}
	close(p.over)
}

// limit sets the time until which the next request of c has to come. The zero time is no
// limit.
func (a *admission) limit(c *connection, t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.deadline = t
	if a.inRecess == nil || mutant.On(mutant.RecessUnheeded) {
		_ = c.SetReadDeadline(t)
	}
}

// next returns the next request of c. In a recess it waits for the end of the recess first.
// Only c's session calls it.
func (a *admission) next(c *connection) (*ipc.Message, error) {
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
	if c.interrupt = cancel; a.inRecess != nil {
		cancel(errReplaced)
	}
	return ctx, func() {
		a.mu.Lock()
		c.interrupt = nil
		a.mu.Unlock()
		cancel(nil)
	}
}
