package rdstcp

import (
	"errors"
	"slices"

	"github.com/rdsd/rdsd/internal/mutant"
)

// This file decides when a new connection is handed to the owner. A new connection may
// replace one of the same host that has broken. What that one had brought must not be lost,
// and must not come later than what the new one brings, because the host's TCP has
// acknowledged all of it. So a new connection waits until everything that had arrived on
// the other connections of its host was handed over. The next new connection then waits
// until this one was read. That holds for those that were dialed, too: a host that does not
// know the lanes yet may have taken what was the connection of another lane for this one's.

// ErrPort says that Dial found no free source port of the lane.
var ErrPort = errors.New("no source port of the lane is free")

const (
	maxWaiting = 256 // accepted, not yet handed over
	maxOfHost  = 32  // of these from one host: eight lanes, a few times
)

// dialed is what a goroutine leaves for Poll. ctx is nil for an accepted connection.
type dialed struct {
	ctx any
	c   *Conn
	err error

	early bool // accepted before a pause
}

// leave queues d for Poll. It closes an accepted connection if too many wait.
func (n *Net) leave(d dialed) {
	n.mu.Lock()
	if n.ended || d.ctx == nil && !n.mayWait(d.c) {
		n.mu.Unlock()
		if d.c != nil {
			d.c.Close(true)
		}
		return
	}
	n.waiting = append(n.waiting, d)
	n.news.Store(true)
	n.mu.Unlock()
	n.sys.Wake()
}

// mayWait reports whether there is room for c, an accepted connection. mu must be held.
func (n *Net) mayWait(c *Conn) bool {
	all, same := 0, 0
	for _, d := range n.waiting {
		if d.ctx == nil {
			all++
			if d.c.Remote.Addr() == c.Remote.Addr() {
				same++
			}
		}
	}
	return all < maxWaiting && same < maxOfHost
}

// takeNews hands over the first connection, or failure, that need not wait.
func (n *Net) takeNews(h Handler) {
	n.mu.Lock()
	i := slices.IndexFunc(n.waiting, func(d dialed) bool {
		return d.c == nil || d.ctx != nil && mutant.On(mutant.TCPDialedEarly) || !n.late(d) && !n.unread(d.c)
	})
	if i < 0 { // Hold and the next Poll that reads try again
		n.news.Store(len(n.ready) > 0)
		n.mu.Unlock()
		return
	}
	d := n.waiting[i]
	n.waiting = slices.Delete(n.waiting, i, i+1)
	n.news.Store(len(n.waiting) > 0)
	n.mu.Unlock()
	if d.c != nil {
		if d.err = n.add(d.c); d.err != nil {
			d.c.Close(true)
			d.c = nil
		}
	}
	if d.ctx != nil {
		h.Dialed(d.ctx, d.c, d.err)
	} else if d.c != nil {
		h.Accepted(d.c)
	}
}

// unread reports whether another connection of c's host may have something to read.
func (n *Net) unread(c *Conn) bool {
	same := func(o *Conn) bool { return o != nil && o.fd >= 0 && o.Remote.Addr() == c.Remote.Addr() }
	if slices.ContainsFunc(n.ready, same) {
		return true
	}
	return n.holds > 0 && slices.ContainsFunc(n.conns, func(o *Conn) bool { return same(o) && o.held })
}
