package rdstcp

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// How new connections come to the owner. One may take the place of another of the
// same host's that has broken off, and what that one had brought must not be lost,
// nor come later than what the new one brings: the host's TCP has acknowledged all
// of it. So a new connection is handed over when everything that had arrived by then
// on the others of its host was; and then no more until it was read itself.

// ErrPort: Dial found no free source port of the lane.
var ErrPort = errors.New("no source port of the lane is free")

const (
	maxWaiting = 256 // accepted, not yet handed over
	maxOfHost  = 32  // of these from one host: eight lanes, a few times
)

// dialed is what a goroutine leaves for Poll. ctx is nil for accepted ones.
type dialed struct {
	ctx any
	c   *Conn
	err error
}

// leave queues d for Poll. Of accepted connections only so many wait.
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
	one := [8]byte{0: 1}
	_, _ = unix.Write(n.bell, one[:])
}

// mayWait says that there is room for c, which was accepted. Called under mu.
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
	i := slices.IndexFunc(n.waiting, func(d dialed) bool { return d.ctx != nil || !n.unread(d.c) })
	if i < 0 { // Hold, or the next Poll that reads, looks again
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

// unread says that another connection of c's host may have something to read.
func (n *Net) unread(c *Conn) bool {
	same := func(o *Conn) bool { return o != nil && o.fd >= 0 && o.Remote.Addr() == c.Remote.Addr() }
	if slices.ContainsFunc(n.ready, same) {
		return true
	}
	return n.holds > 0 && slices.ContainsFunc(n.conns, func(o *Conn) bool { return same(o) && o.held })
}
