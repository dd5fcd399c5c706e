package rdstcp

import (
	"errors"
	"net/netip"
	"slices"
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

	looked bool   // behind is complete
	behind []mark // what had arrived before it. Only Poll's goroutine uses it
}

// mark is what had arrived on a connection: so many bytes, of which some may have been read.
type mark struct {
	c  *Conn
	to uint64
}

// leave queues d for Poll. It closes an accepted connection if too many wait. Any goroutine
// may call it.
func (n *Net) leave(d dialed) {
	n.mu.Lock()
	if n.ended || d.ctx == nil && !n.mayWait(d.c) {
		n.mu.Unlock()
		if d.c != nil {
			n.sys.End(d.c.fd, true) // the owner has never had it
		}
		return
	}
	n.waiting = append(n.waiting, d)
	n.news.Store(true)
	n.mu.Unlock()
	n.sys.Wake()
}

// mayWait reports whether there is room for c, an accepted connection. mu must be held.
// Any goroutine may call it.
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
	i, again := n.first()
	if i < 0 { // if what it waits for is held, Hold has another look taken
		n.news.Store(again)
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

// first is the first of the waiting that need not wait, -1 if there is none. Of one host they come
// in their order. again says that one waits for what Poll can read. mu must be held.
func (n *Net) first() (i int, again bool) {
	var hosts []netip.Addr // of those that wait
	for i := range n.waiting {
		d := &n.waiting[i]
		switch {
		case d.c == nil:
			return i, true
		case n.late(*d), slices.Contains(hosts, d.c.Remote.Addr()):
			continue
		}
		waits, reads := n.waits(d)
		if !waits {
			return i, true
		}
		again = again || reads
		hosts = append(hosts, d.c.Remote.Addr())
	}
	return -1, again
}

// waits reports whether something was not handed over that had arrived on other connections of d's
// host before d came, and whether Poll can read some of that. What arrives there later does not
// matter: a host that goes on sending would keep d waiting for ever. mu must be held.
func (n *Net) waits(d *dialed) (waits, reads bool) {
	if !d.looked {
		d.looked = true
		for _, o := range n.conns {
			if o == nil || o.fd < 0 || o.Remote.Addr() != d.c.Remote.Addr() {
				continue
			}
			if left, err := n.sys.Unread(o.fd); err == nil && (left > 0 || o.ends) {
				d.behind = append(d.behind, mark{o, o.got + uint64(left)})
			}
		}
	}
	d.behind = slices.DeleteFunc(d.behind, func(m mark) bool {
		return m.c.fd < 0 || m.c.got >= m.to && !m.c.ends // one that has ended is read to its end
	})
	for _, m := range d.behind {
		reads = reads || !m.c.held
	}
	return len(d.behind) > 0, reads
}
