package metrics

import (
	"errors"
	"sync"
	"time"
)

// askTimeout is how long a scrape waits for one answer of the daemon.
const askTimeout = time.Second

var errLate = errors.New("the daemon did not answer in time")

// asker calls f for scrapes and waits a bounded time for the answer. While a call is late,
// the next scrape waits for that call and makes no new one, so that calls do not pile up.
type asker[T any] struct {
	f func() (T, error)

	mu      sync.Mutex
	pending chan answer[T] // the call in progress, or nil
	errs    uint64
}

type answer[T any] struct {
	v   T
	err error
}

// ask returns f's answer. It counts an error, which is f's or errLate.
func (a *asker[T]) ask() (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		c := make(chan answer[T], 1)
		a.pending = c
		go func() {
			v, err := a.f()
			c <- answer[T]{v, err}
		}()
	}
	timeout := time.NewTimer(askTimeout)
	defer timeout.Stop()
	got := answer[T]{err: errLate}
	select {
	case got = <-a.pending:
		a.pending = nil
	case <-timeout.C:
	}
	if got.err != nil {
		a.errs++
	}
	return got.v, got.err
}

// failed counts the calls without an answer.
func (a *asker[T]) failed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errs
}
