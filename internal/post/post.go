// Package post takes closures of any goroutine for the one goroutine that runs them.
package post

import (
	"sync"
	"sync/atomic"
)

// Box has the closures that were left and have not run.
type Box struct {
	// Wake rings who runs the closures, nil: nobody. It is set before other goroutines use the box.
	Wake func()

	has atomic.Bool // there is something

	mu     sync.Mutex
	closed bool     // guarded by mu: nothing is taken any more
	left   []func() // guarded by mu

	now []func() // what Run took last, its goroutine's
}

// Add leaves f; false: the box is closed. Safe for any goroutine.
func (p *Box) Add(f func()) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.left = append(p.left, f)
	p.has.Store(true)
	p.mu.Unlock()
	p.Ring()
	return true
}

// Ring wakes who runs the closures. Safe for any goroutine.
func (p *Box) Ring() {
	if p.Wake != nil {
		p.Wake()
	}
}

// Has reports whether there is something.
func (p *Box) Has() bool { return p.has.Load() }

// Run runs what there is and reports whether there was any.
func (p *Box) Run() bool {
	if !p.Has() {
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

// Close drops what there is and takes nothing any more.
func (p *Box) Close() {
	p.mu.Lock()
	p.closed = true
	p.left = nil
	p.mu.Unlock()
}
