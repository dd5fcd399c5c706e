package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrNoAnswer says that the server did not answer a request in time.
var ErrNoAnswer = errors.New("no answer")

// calls matches answers with the requests that wait for them. It is safe for concurrent
// use.
type calls struct {
	mu      sync.Mutex // guards the fields below
	next    uint64
	waiting map[uint64]*Call
	err     error // why no answer will come any more
}

// Call is one request that waits for its answers.
type Call struct {
	id      uint64
	of      *calls
	answers chan Message // has room for all answers to one request: FETCHED, then DURABLE or FAILED
}

// newCalls starts at a random request number, so that answers to an earlier process at the
// same port match no call.
func newCalls() *calls {
	return &calls{next: rand.Uint64() >> 1, waiting: map[uint64]*Call{}}
}

// begin makes a call with a new request number. From then on it can get answers.
func (c *calls) begin() *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	k := &Call{id: c.next, of: c, answers: make(chan Message, 4)}
	if c.err != nil {
		close(k.answers)
		return k
	}
	c.waiting[k.id] = k
	return k
}

// End ends the call. Answers that come later are ignored.
func (k *Call) End() {
	k.of.mu.Lock()
	delete(k.of.waiting, k.id)
	k.of.mu.Unlock()
}

// answer passes m to the calls whose numbers it has. It drops a late answer, whose call
// has ended.
func (c *calls) answer(m Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answerLocked(m.ID, m)
	for _, id := range m.More {
		c.answerLocked(id, m)
	}
}

func (c *calls) answerLocked(id uint64, m Message) {
	if k := c.waiting[id]; k != nil {
		select {
		case k.answers <- m:
		default: // the server sent more answers than a request can get
		}
	}
}

// retryAll answers all waiting calls with StatusRetry.
func (c *calls) retryAll(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.waiting {
		c.answerLocked(id, Message{Kind: KindFailed, Status: StatusRetry, Text: why})
	}
}

// fail ends all calls, and those that begin later, with err.
func (c *calls) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	for _, k := range c.waiting {
		close(k.answers)
	}
	clear(c.waiting)
}

// Wait returns the next answer. FAILED is returned as a *Failure. If no answer comes
// within patience, Wait returns ErrNoAnswer.
func (k *Call) Wait(ctx context.Context, patience time.Duration) (Message, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-k.answers:
		switch {
		case !ok:
			k.of.mu.Lock()
			defer k.of.mu.Unlock()
			return Message{}, k.of.err
		case m.Kind == KindFailed:
			return m, &Failure{m.Status, m.Text}
		}
		return m, nil
	case <-timer.C:
		return Message{}, ErrNoAnswer
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	}
}
