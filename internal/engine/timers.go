package engine

import "github.com/rdsd/rdsd/internal/lists"

// deadlines is what is due at a time, whatever else happens.
type deadlines struct {
	peers  lists.Alarms[peer]  // whose connections have a timer
	limits lists.Alarms[txMsg] // messages that are given up; most have no limit, and are not in there
	next   int64               // when runTimers has something to do, 0: never

	ticking []*peer // scratch of runTimers
}

// by has runTimers run by t, 0: by nothing of the caller's.
func (d *deadlines) by(t int64) {
	if t != 0 && (d.next == 0 || t < d.next) {
		d.next = t
	}
}

// peer has p looked at by at, 0: by nothing of its own. A timer that moves away or is
// cleared leaves its peer where it is, which then is looked at too early, once:
// connections set and clear the timer of their acks with every few messages.
func (d *deadlines) peer(p *peer, at int64) {
	if at != 0 && (p.timer.When() == 0 || at < p.timer.When()) {
		d.peers.Set(&p.timer, p, at)
	}
	d.by(at)
}

// ticksATurn is how many connections' timers run in one turn: some of them dial.
// The others are due in the next one.
const ticksATurn = 128

// runTimers ticks everything that has a timer due and finds the next one.
func (e *Engine) runTimers() {
	e.rx.tellCong() // a timer may send
	e.due.next = 0
	ticking := e.due.ticking[:0] // first all, for a tick may set the timer anew
	for len(ticking) < ticksATurn {
		p := e.due.peers.Due(e.now)
		if p == nil {
			break
		}
		ticking = append(ticking, p)
	}
	for i, p := range ticking {
		ticking[i] = nil
		p.c.Tick(e.now)
	}
	e.due.ticking = ticking
	e.due.by(e.due.peers.Next())
	e.throttle.letGo()
	e.rx.endStalled()
	e.tx.giveUps()
	e.dests.nowhere.findHomes()
	e.keys.tickRegions()
	e.peers.sweepPeers()
}
