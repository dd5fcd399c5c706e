package engine

// A planned pause has four stages.
//
//   - haltChores: turns go on as before, until the chores are done, for at most haltChoresNs. So
//     nobody waits for what others have left to be done.
//   - haltOps: from here on the engine pauses. Nothing is taken in from clients, no posted closure runs, and no further
//     operation is posted. Pings end with errReplaced. Operations in progress end with their statuses, for at most
//     haltOpsNs. Operations within the host stop where they are, between two slices.
//   - haltBreak: connections are broken off, and queue pairs empty. Those by RDS/TCP end in
//     order, so that nothing is lost that a peer holds for delivered. Chores that are left from
//     haltChores are done to their end.
//   - haltStill: no work request and no copy touches memory. Turns do nothing, and the
//     state stands still.
//
// Resume goes on from any of them. The engine's clock stands still with the engine: what
// is due at a time is due later by the pause.
type haltStage uint8

const (
	haltNone haltStage = iota
	haltChores
	haltOps
	haltBreak
	haltStill
)

// haltChoresNs is how long turns go on as before while there are chores.
const haltChoresNs = 1_000_000_000

// haltOpsNs is how long operations in progress may take to end before they are broken off
// with their connections.
const haltOpsNs = 50_000_000

// haltTCPNs is how long an attempt to connect by RDS/TCP may take that is in progress in
// haltBreak.
const haltTCPNs = 1_000_000_000

// halting is the engine's part.
type halting struct {
	e *Engine

	stage     haltStage
	choresEnd int64 // of haltChores, by the engine's clock
	opsEnd    int64 // of haltOps
	tcpEnd    int64 // of attempts to connect by RDS/TCP
	behold    bool  // the next turn sets behind

	adopted bool // clients are as the engine before this one left them, see Adopt
}

// Halt begins a planned pause: what is in progress comes to its end in the next turns,
// until Halted. Only the goroutine that calls Turn may call this, Halts, Halted and Resume.
func (e *Engine) Halt() {
	if e.halt.stage != haltNone {
		return
	}
	e.halt.stage, e.halt.choresEnd = haltChores, e.now+haltChoresNs
	if e.halt.choresOpen() {
		e.due.by(e.halt.choresEnd)
	} else {
		e.halt.pauseNow()
	}
}

// pauseNow begins haltOps.
func (h *halting) pauseNow() {
	e := h.e
	h.stage, h.opsEnd = haltOps, e.now+haltOpsNs
	e.peers.endPings()
	if e.tcp != nil {
		e.tcp.net.Pause()
	}
	for _, p := range e.peers.all {
		p.c.to.HoldOps()
	}
	e.due.by(h.opsEnd)
}

// Halted reports whether the engine stands still: nothing of its own and no work request
// touches any memory, and Turn does nothing.
func (e *Engine) Halted() bool { return e.halt.stage == haltStill }

// Halts reports whether the engine pauses or stands still: nothing new is taken in.
func (e *Engine) Halts() bool { return e.halt.stage >= haltOps }

// Resume ends a planned pause, whatever its stage. Applications on this host
// notice nothing but the pause, and peers that were connected see a connection that was
// reset.
func (e *Engine) Resume() {
	was := e.halt.stage
	if was == haltNone {
		return
	}
	if e.halt.stage = haltNone; was == haltChores {
		return
	}
	e.halt.behold = was == haltStill
	if e.halt.adopted {
		e.halt.adopted = false
		e.beginAdopted()
	}
	for _, p := range e.peers.all {
		p.c.Resume(e.now)
	}
	if e.tcp != nil {
		e.tcp.net.Resume()
	}
	e.due.by(e.now)
}

// setClock sets the time of a turn and returns the engine's.
func (h *halting) setClock(now int64, wall Wall) int64 {
	e := h.e
	if h.behold {
		h.behold, e.behind = false, now-e.now
	}
	e.now, e.wall = now-e.behind, wall
	e.looks()
	return e.now
}

// haltOn is what a turn does for a pause at its end. It reports whether the pause has come further.
func (h *halting) haltOn() bool {
	e := h.e
	switch h.stage {
	case haltChores:
		if h.choresOpen() {
			e.due.by(h.choresEnd)
			return false
		}
		h.pauseNow()
		return true
	case haltOps:
		if h.opsOpen() {
			e.due.by(h.opsEnd)
			return false
		}
		h.stage, h.tcpEnd = haltBreak, e.now+haltTCPNs
		e.due.by(h.tcpEnd)
		for i := 0; i < len(e.peers.all); i++ { // a break may have one forgotten
			p := e.peers.all[i]
			p.halted = p.isUp
			p.c.Halt(e.now)
		}
		return true
	case haltBreak:
		if e.tcp != nil && e.now >= h.tcpEnd {
			e.tcp.net.GiveUp()
		} else {
			e.due.by(h.tcpEnd)
		}
		if h.stands() {
			h.stage = haltStill
			return true
		}
	}
	return false
}

// choresOpen reports whether chores are to be waited for before the engine pauses.
func (h *halting) choresOpen() bool {
	e := h.e
	return e.chores.Open() > 0 && e.now < h.choresEnd
}

// opsOpen reports whether operations are to be waited for.
func (h *halting) opsOpen() bool {
	e := h.e
	if e.now >= h.opsEnd {
		return false
	}
	for _, p := range e.peers.all {
		if p.c.OpsOpen() {
			return true
		}
	}
	return false
}

// stands reports whether nothing is in progress any more.
func (h *halting) stands() bool {
	e := h.e
	if e.devices.touched > 0 {
		return false
	}
	for _, r := range e.devices.rails {
		if len(r.byQPN) > 0 {
			return false
		}
	}
	return e.tcpStands() && e.chores.Open() == 0 && len(e.dirty.emptying) == 0 && len(e.dirty.breaking) == 0 && len(e.clients.dirty) == 0
}

// partedDown notes that p is down because of a pause. It reports whether that is so:
// destinations are not told then, unless p does not come back.
func (p *peer) partedDown() bool {
	p.parted = p.halted
	p.halted = false
	return p.parted
}

// partedUp notes that p is up. It reports whether a pause has ended with that, of
// which destinations know nothing.
func (p *peer) partedUp(restarted bool) bool {
	was := p.parted
	p.parted = false
	if was && restarted {
		p.downs++
	}
	return was && !restarted
}

// partedLost has destinations know that p did not come back after a pause.
func (h *halting) partedLost(p *peer) {
	if p.parted {
		p.parted = false
		p.downs++
		h.e.dests.tell(&p.slots)
	}
}
