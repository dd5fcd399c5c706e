package rdstcp

import (
	"context"
)

// pause is the Net's part of a planned pause, in which another process may take its place. A
// connection that was accepted has to be read, because its host holds what it has sent for
// delivered. So who hands over stops accepting first (Options.Listen), and then pauses the Net.
type pause struct {
	on      bool // guarded by Net.mu
	dialing int  // attempts to connect; guarded by Net.mu

	dials    context.Context // ends the attempts to connect
	endDials context.CancelFunc
}

// Pause has connections that are accepted from now on wait until Resume. Poll still hands over
// those that were accepted before.
func (n *Net) Pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pause.on = true
	for i := range n.waiting {
		n.waiting[i].early = true
	}
}

// Resume ends what Pause and GiveUp have begun.
func (n *Net) Resume() {
	n.mayDial()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pause.on = false
	n.news.Store(len(n.waiting) > 0)
}

// Left returns how many attempts to connect and accepted connections Poll has yet to hand over in
// a pause, and how many connections wait for Resume.
func (n *Net) Left() (now, later int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.waiting {
		if n.late(d) {
			later++
		}
	}
	return n.pause.dialing + len(n.waiting) - later, later
}

// GiveUp ends the attempts to connect that are in progress. Handler.Dialed tells of each.
func (n *Net) GiveUp() { n.pause.endDials() }

// late reports whether d waits for Resume. mu must be held.
func (n *Net) late(d dialed) bool { return n.pause.on && d.ctx == nil && !d.early }

// mayDial renews what ends attempts to connect.
func (n *Net) mayDial() {
	if n.pause.dials == nil || n.pause.dials.Err() != nil {
		n.pause.dials, n.pause.endDials = context.WithCancel(n.ctx)
	}
}

// dialing counts attempts. Any goroutine may call it.
func (n *Net) dialing(by int) {
	n.mu.Lock()
	n.pause.dialing += by
	n.mu.Unlock()
}
