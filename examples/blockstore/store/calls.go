package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrNoAnswer says that the answer to a request did not come in time, or never will come.
// The server may carry out the request or not.
var ErrNoAnswer = errors.New("no answer")

// calls matches answers with the requests that wait for them. It is safe for concurrent
// use.
type calls struct {
	mu      sync.Mutex // guards the fields below, and those of the calls
	next    uint64
	waiting map[uint64]*call
	err     error // not nil if no answers will come any more
}

// call is one request that waits for its answer.
type call struct {
	id    uint64
	until time.Time
	// done is called once, with the answer or the error. It is nil after that, and after
	// leave.
	done func(Message, error)
	// back, if not nil, is called when the server has finished with the request. That may
	// be after done was called with an error, or never.
	back func()
	// sending delays the call of done until sent. early is the outcome that came before
	// sent.
	sending bool
	early   *outcome
}

// outcome is the answer or the error of a call.
type outcome struct {
	m   Message
	err error
}

// newCalls starts at a random request number, so that answers to an earlier process at the
// same port match no call.
func newCalls() *calls {
	return &calls{next: rand.Uint64() >> 1, waiting: map[uint64]*call{}}
}

// begin makes a call with a new request number, which waits for its answer for patience. If
// sending is true, done is not called before sent. begin returns the error if no answers
// will come any more.
func (c *calls) begin(patience time.Duration, sending bool, back func(), done func(Message, error)) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.next++
	k := &call{id: c.next, until: time.Now().Add(patience), done: done, back: back, sending: sending}
	c.waiting[k.id] = k
	return k, nil
}

// sent ends the delay of sending, and calls done if the outcome is there already.
func (c *calls) sent(k *call) {
	c.mu.Lock()
	k.sending = false
	done, early := k.done, k.early
	if early != nil {
		k.done = nil
	}
	c.mu.Unlock()
	if early != nil && done != nil {
		done(early.m, early.err)
	}
}

// cancel ends a call whose request was not sent.
func (c *calls) cancel(k *call) {
	c.mu.Lock()
	delete(c.waiting, k.id)
	c.mu.Unlock()
}

// leave prevents the call of k's done. It returns false if done was called before, or is
// being called.
func (c *calls) leave(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.done == nil {
		return false
	}
	k.done = nil
	if k.back == nil {
		delete(c.waiting, k.id)
	}
	return true
}

// answer ends the calls that m names with the answer m. It ignores request numbers of which
// no call waits: the answer is late.
func (c *calls) answer(m Message) {
	var err error
	if m.Kind == KindFailed {
		err = &Failure{m.Status, m.Text}
	}
	c.settle(m.ID, m, err)
	for _, id := range m.More {
		c.settle(id, m, err)
	}
}

// settle ends the call id with m and err. The server has finished with the request.
func (c *calls) settle(id uint64, m Message, err error) {
	c.mu.Lock()
	k := c.waiting[id]
	if k == nil {
		c.mu.Unlock()
		return
	}
	delete(c.waiting, id)
	done := k.done
	if k.sending {
		m.Data = nil // only pushes set sending, and their answers have no bytes
		if done = nil; k.early == nil {
			k.early = &outcome{m, err}
		}
	} else {
		k.done = nil
	}
	c.mu.Unlock()
	if k.back != nil {
		k.back()
	}
	if done != nil {
		done(m, err)
	}
}

// unknown ends the call id with ErrNoAnswer, because its outcome will never be known.
func (c *calls) unknown(id uint64, why string) {
	c.abandon(fmt.Errorf("%w: %s", ErrNoAnswer, why), func(k *call) bool { return k.id == id })
}

// unknownAll ends all calls as unknown does.
func (c *calls) unknownAll(why string) {
	c.abandon(fmt.Errorf("%w: %s", ErrNoAnswer, why), func(*call) bool { return true })
}

// expire ends the calls whose patience is over with ErrNoAnswer.
func (c *calls) expire(now time.Time) {
	c.abandon(ErrNoAnswer, func(k *call) bool { return now.After(k.until) })
}

// fail ends all calls, and those that begin later, with err.
func (c *calls) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.abandon(err, func(*call) bool { return true })
}

// abandon ends the calls that match with err. Calls with a back stay in the table, because
// a late answer calls it.
func (c *calls) abandon(err error, match func(*call) bool) {
	var all []func(Message, error)
	c.mu.Lock()
	for id, k := range c.waiting {
		if k.done == nil || !match(k) {
			continue
		}
		if k.back == nil {
			delete(c.waiting, id)
		}
		switch {
		case !k.sending:
			all = append(all, k.done)
			k.done = nil
		case k.early == nil:
			k.early = &outcome{err: err}
		}
	}
	c.mu.Unlock()
	for _, done := range all {
		done(Message{}, err)
	}
}
