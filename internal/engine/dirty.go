package engine

// dirtyPeers are the peers whose connections have something to do in this turn.
type dirtyPeers struct {
	e *Engine

	flush, spareFlush       []*peer // something to send, and the other half of the pair
	breaking                []*peer // to break off: they misbehaved inside a call of their connection
	emptying, spareEmptying []*peer // their queue pairs are in error and empty themselves; the two swap
}

// touch notes that p may have something to send, has broken, or has a new timer. What
// has something to send is flushed in this turn or the next, and watched then.
func (d *dirtyPeers) touch(p *peer) {
	switch {
	case p.dirty || p.gone:
		p.touched = true
	case p.c.NeedFlush() || p.moving || p.flows.n > 0 && p.mayFeed():
		p.dirty = true
		d.flush = append(d.flush, p)
	default:
		d.watch(p)
	}
}

func (d *dirtyPeers) watch(p *peer) {
	e := d.e
	if !p.uncounted {
		p.uncounted = true
		e.watch.counts.uncounted = append(e.watch.counts.uncounted, p)
	}
	if !p.emptying && p.c.emptying() {
		p.emptying = true
		d.emptying = append(d.emptying, p)
	}
	e.peers.restReach(p)
	e.due.peer(p, p.c.NextTimeout())
}

// flushPeers lets every connection with something to send post it.
func (d *dirtyPeers) flushPeers() bool {
	e := d.e
	e.rx.tellCong()
	if len(d.flush) == 0 {
		return false
	}
	list := d.flush
	d.flush, d.spareFlush = d.spareFlush[:0], list
	for _, p := range list {
		if p.gone {
			continue
		}
		if !p.leave(e.now) {
			p.dirty = false
			d.watch(p) // it ends, which touches p again
			continue
		}
		if e.tx.feed(p); p.gone {
			continue
		}
		for fed := true; fed; fed = e.tx.feed(p) || p.c.LetsGo() {
			p.touched = false
			p.c.to.Flush(e.now)
		}
		// What it could not post waits for an event: credits, completions, a
		// send buffer. Each of them touches p again. A stream stops for others.
		p.dirty = false
		if p.touched || p.c.profile().queues {
			d.touch(p)
		} else {
			d.watch(p)
		}
	}
	return true
}

// polled does what waited for the end of completions.
func (d *dirtyPeers) polled() {
	e := d.e
	for i, p := range d.breaking {
		d.breaking[i] = nil
		p.breaking = false
		p.c.Reset(e.now, errCtl)
	}
	d.breaking = d.breaking[:0]
	if e.sendBufs.starved && len(e.sendBufs.free) > 0 {
		e.sendBufs.starved = false
		for _, p := range e.peers.all {
			d.touch(p)
		}
	}
}
