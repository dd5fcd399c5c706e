package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// errNoAnswer: the server did not answer a request in time.
var errNoAnswer = errors.New("no answer")

// calls matches answers with the requests that wait for them. Safe for
// concurrent use.
type calls struct {
	mu      sync.Mutex // guards the fields below
	next    uint64
	waiting map[uint64]*call
	err     error // why no answer will come any more
}

// call is one request that waits for its answers.
type call struct {
	id      uint64
	of      *calls
	answers chan message // FETCHED, then DURABLE or FAILED: holds all a request can get
}

// newCalls starts at a random number, so that answers to an earlier process at
// the same port match nothing.
func newCalls() *calls {
	return &calls{next: rand.Uint64() >> 1, waiting: map[uint64]*call{}}
}

// begin makes a request number and waits for its answers from now on.
func (c *calls) begin() *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	k := &call{id: c.next, of: c, answers: make(chan message, 4)}
	if c.err != nil {
		close(k.answers)
		return k
	}
	c.waiting[k.id] = k
	return k
}

// end stops waiting; answers that come later are ignored.
func (k *call) end() {
	k.of.mu.Lock()
	delete(k.of.waiting, k.id)
	k.of.mu.Unlock()
}

// answer hands m to the requests it names. What nobody waits for is dropped:
// it is late.
func (c *calls) answer(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answerLocked(m.id, m)
	for _, id := range m.more {
		c.answerLocked(id, m)
	}
}

func (c *calls) answerLocked(id uint64, m message) {
	if k := c.waiting[id]; k != nil {
		select {
		case k.answers <- m:
		default: // more answers than a request has
		}
	}
}

// retryAll answers all that wait with statusRetry.
func (c *calls) retryAll(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.waiting {
		c.answerLocked(id, message{kind: kindFailed, status: statusRetry, text: why})
	}
}

// fail ends all waiting, now and later, with err.
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

// wait returns the next answer. FAILED comes as a *failure; errNoAnswer after
// patience.
func (k *call) wait(ctx context.Context, patience time.Duration) (message, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-k.answers:
		switch {
		case !ok:
			k.of.mu.Lock()
			defer k.of.mu.Unlock()
			return message{}, k.of.err
		case m.kind == kindFailed:
			return m, &failure{m.status, m.text}
		}
		return m, nil
	case <-timer.C:
		return message{}, errNoAnswer
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}
