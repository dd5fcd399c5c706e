package main

import (
	"sync"
	"time"
)

// job is one block to copy.
type job struct {
	block   uint64
	start   time.Time // when it was first handed out
	attempt int       // from 1
}

// todo hands out blocks to workers: each block once, and once more each
// time it comes back. Safe for concurrent use.
type todo struct {
	mu      sync.Mutex // guards the fields below
	cond    sync.Cond
	blocks  uint64
	nextNew uint64
	again   []job
	done    uint64
	err     error
	told    func(done uint64) // nil: nobody asked
}

func newTodo(blocks uint64) *todo {
	t := &todo{blocks: blocks}
	t.cond.L = &t.mu
	return t
}

// follow calls told with the number of blocks done, now and whenever one is
// finished, one call at a time.
func (t *todo) follow(told func(done uint64)) {
	t.mu.Lock()
	t.told = told
	told(t.done)
	t.mu.Unlock()
}

// next waits for a block to do; ok is false when all are done or the copy was
// stopped.
func (t *todo) next() (j job, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		switch {
		case t.err != nil || t.done == t.blocks:
			return job{}, false
		case len(t.again) > 0:
			j = t.again[0]
			t.again = t.again[1:]
			return j, true
		case t.nextNew < t.blocks:
			j = job{block: t.nextNew, start: time.Now(), attempt: 1}
			t.nextNew++
			return j, true
		}
		t.cond.Wait()
	}
}

// finish says that a block handed out is done.
func (t *todo) finish() {
	t.mu.Lock()
	t.done++
	if t.told != nil {
		t.told(t.done)
	}
	if t.done == t.blocks {
		t.cond.Broadcast()
	}
	t.mu.Unlock()
}

// retry gives a block back, to be handed out for another attempt.
func (t *todo) retry(j job) {
	t.mu.Lock()
	j.attempt++
	t.again = append(t.again, j)
	t.cond.Signal()
	t.mu.Unlock()
}

// stop ends the copy; the first error stays.
func (t *todo) stop(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.cond.Broadcast()
	t.mu.Unlock()
}

// state returns how many blocks are done, and the error that stopped the copy.
func (t *todo) state() (done uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done, t.err
}
