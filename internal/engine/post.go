package engine

import (
	"sync"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/stats"
)

// post is where other goroutines leave functions for the engine's goroutine to run.
type post struct {
	has  atomic.Bool // there is something
	wake func()      // rings who drives the engine, nil: nobody

	mu     sync.Mutex
	closed bool     // guarded by mu: nothing is taken any more
	left   []func() // guarded by mu

	now []func() // what run took last, the engine's
}

// add leaves f; false: the engine has ended.
func (p *post) add(f func()) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.left = append(p.left, f)
	p.has.Store(true)
	p.mu.Unlock()
	if p.wake != nil {
		p.wake()
	}
	return true
}

// run runs what there is and reports whether there was any.
func (p *post) run() bool {
	if !p.has.Load() {
		return false
	}
	p.mu.Lock()
	p.now, p.left = p.left, p.now[:0]
	p.has.Store(false)
	p.mu.Unlock()
	for i, f := range p.now {
		f()
		p.now[i] = nil
	}
	return true
}

// close drops what there is.
func (p *post) close() {
	p.mu.Lock()
	p.closed = true
	p.left = nil
	p.mu.Unlock()
}

// Do runs f on the engine's goroutine, soon, and returns at once. After the
// engine has ended it reports false and drops f. Safe for any goroutine.
func (e *Engine) Do(f func()) bool { return e.post.add(f) }

// Count counts one more of c, soon. Safe for any goroutine.
func (e *Engine) Count(c stats.Counter) { e.Do(func() { e.st.C[c]++ }) }

// CountAll counts n more of c, as Count does. Safe for any goroutine.
func (e *Engine) CountAll(c stats.Counter, n uint64) { e.Do(func() { e.st.C[c] += n }) }

// End refuses closures from now on. Nobody turns the engine any more.
func (e *Engine) End() { e.post.close() }
