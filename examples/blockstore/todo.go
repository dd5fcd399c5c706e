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

// todo hands out blocks to workers. It hands out each block once, and again each time the
// block is given back by retry. It is safe for concurrent use.
type todo struct {
	mu      sync.Mutex // guards the fields below
	cond    sync.Cond
	blocks  uint64
	nextNew uint64
	again   []job
	done    uint64
	err     error
	told    func(done uint64) // set by follow; may be nil
}

func newTodo(blocks uint64) *todo {
	t := &todo{blocks: blocks}
	t.cond.L = &t.mu
	return t
}

// follow calls told with the number of blocks done: at once, and whenever a block is
// finished. There is one call at a time, and told must not call t.
func (t *todo) follow(told func(done uint64)) {
	t.mu.Lock()
	t.told = told
	told(t.done)
	t.mu.Unlock()
}

// next waits for a block to copy. ok is false when all blocks are done or the copy was
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

// finish counts a block that was handed out as done.
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

// retry gives a block back, so that next hands it out for another attempt.
func (t *todo) retry(j job) {
	t.mu.Lock()
	j.attempt++
	t.again = append(t.again, j)
	t.cond.Signal()
	t.mu.Unlock()
}

// stop ends the copy. The error of the first call stays.
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
