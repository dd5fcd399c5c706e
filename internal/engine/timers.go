package engine

import "container/heap"

// timers is a heap of the peers whose connections have a timer, soonest first.
// A timer that moves away or is cleared leaves its peer where it is, which then
// is looked at too early, once: connections set and clear the timer of their
// acks with every few messages.
type timers []*peer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].timerAt < t[j].timerAt }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timerPos, t[j].timerPos = i, j
}

// Push and Pop are for package heap.
func (t *timers) Push(x any) {
	p := x.(*peer)
	p.timerPos = len(*t)
	*t = append(*t, p)
}

func (t *timers) Pop() any {
	last := len(*t) - 1
	p := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	p.timerAt = 0
	return p
}

// arm has p looked at by at, 0: by nothing of its own.
func (t *timers) arm(p *peer, at int64) {
	switch {
	case at == 0:
	case p.timerAt == 0:
		p.timerAt = at
		heap.Push(t, p)
	case at < p.timerAt:
		p.timerAt = at
		heap.Fix(t, p.timerPos)
	}
}

func (t *timers) drop(p *peer) {
	if p.timerAt != 0 {
		heap.Remove(t, p.timerPos)
	}
}

// ticksATurn is how many connections' timers run in one turn: some of them dial.
// The others are due in the next one.
const ticksATurn = 128

// due moves the peers to look at by now into list.
func (t *timers) due(list []*peer, now int64) []*peer {
	for len(*t) > 0 && (*t)[0].timerAt <= now && len(list) < ticksATurn {
		list = append(list, heap.Pop(t).(*peer))
	}
	return list
}

// armTimer has runTimers run by t, 0: by nothing of the caller's.
func (e *Engine) armTimer(t int64) {
	if t != 0 && (e.nextTimer == 0 || t < e.nextTimer) {
		e.nextTimer = t
	}
}

// runTimers ticks everything that has a timer due and finds the next one.
func (e *Engine) runTimers() {
	e.tellCong() // a timer may send
	e.nextTimer = 0
	e.ticking = e.timers.due(e.ticking[:0], e.now)
	for i, p := range e.ticking {
		e.ticking[i] = nil
		p.c.Tick(e.now)
		e.touch(p)
	}
	if len(e.timers) > 0 {
		e.armTimer(e.timers[0].timerAt)
	}
	e.letGo()
	e.endStalled()
	e.giveUps()
	e.findHomes()
	e.tickRegions()
	e.sweepPeers()
}
