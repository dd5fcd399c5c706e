package engine

// dirtyPeers are the peers whose connections have something to do in this turn.
type dirtyPeers struct {
	flush, spareFlush       []*peer // something to send, and the other half of the pair
	breaking                []*peer // to break off: they misbehaved inside a call of their connection
	emptying, spareEmptying []*peer // their queue pairs are in error and empty themselves; the two swap
}

// touch notes that p may have something to send, has broken, or has a new timer. What
// has something to send is flushed in this turn or the next, and watched then.
func (e *Engine) touch(p *peer) {
	switch {
	case p.dirty || p.gone:
		p.touched = true
	case p.c.NeedFlush() || p.flows.N > 0 && p.mayFeed():
		p.dirty = true
		e.dirty.flush = append(e.dirty.flush, p)
	default:
		e.watch(p)
	}
}

func (e *Engine) watch(p *peer) {
	if !p.uncounted {
		p.uncounted = true
		e.counts.uncounted = append(e.counts.uncounted, p)
	}
	if !p.emptying && p.c.emptying() {
		p.emptying = true
		e.dirty.emptying = append(e.dirty.emptying, p)
	}
	e.due.peer(p, p.c.NextTimeout())
}

// flushPeers lets every connection with something to send post it.
func (e *Engine) flushPeers() bool {
	e.tellCong()
	if len(e.dirty.flush) == 0 {
		return false
	}
	list := e.dirty.flush
	e.dirty.flush, e.dirty.spareFlush = e.dirty.spareFlush[:0], list
	for _, p := range list {
		if p.gone {
			continue
		}
		e.feed(p)
		for fed := true; fed; fed = e.feed(p) || p.c.LetsGo() {
			p.touched = false
			p.c.to.Flush(e.now)
		}
		// What it could not post waits for an event: credits, completions, a
		// send buffer. Each of them touches p again. A stream stops for others.
		p.dirty = false
		if p.touched || p.c.queues() {
			e.touch(p)
		} else {
			e.watch(p)
		}
	}
	return true
}

// polled does what waited for the end of completions.
func (e *Engine) polled() {
	for i, p := range e.dirty.breaking {
		e.dirty.breaking[i] = nil
		p.breaking = false
		p.c.Reset(e.now, errCtl)
	}
	e.dirty.breaking = e.dirty.breaking[:0]
	if e.sendBufs.starved && len(e.sendBufs.free) > 0 {
		e.sendBufs.starved = false
		for _, p := range e.peers.all {
			e.touch(p)
		}
	}
}
