package engine

import (
	"container/heap"

	"github.com/rdsd/rdsd/conn"
)

// limits is a heap of the messages that are given up at some time, soonest
// first. Those without a limit, which are most, never see it.
type limits []*txMsg

func (l limits) Len() int           { return len(l) }
func (l limits) Less(i, j int) bool { return l[i].giveUpAt < l[j].giveUpAt }

func (l limits) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].giveUpPos, l[j].giveUpPos = i, j
}

// Push and Pop are for package heap.
func (l *limits) Push(x any) {
	t := x.(*txMsg)
	t.giveUpPos = len(*l)
	*l = append(*l, t)
}

func (l *limits) Pop() any {
	last := len(*l) - 1
	t := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	t.giveUpAt = 0
	return t
}

func (l *limits) drop(t *txMsg) { heap.Remove(l, t.giveUpPos) }

// limit has t given up in ms milliseconds.
func (e *Engine) limit(t *txMsg, ms uint32) {
	t.giveUpAt = e.now + int64(ms)*1_000_000
	heap.Push(&e.limits, t)
	e.armTimer(t.giveUpAt)
}

// giveUps ends the messages whose time is up.
func (e *Engine) giveUps() {
	e.besides(func() bool {
		if len(e.limits) == 0 || e.limits[0].giveUpAt > e.now {
			return false
		}
		e.timeUp(heap.Pop(&e.limits).(*txMsg))
		return true
	})
	if len(e.limits) > 0 {
		e.armTimer(e.limits[0].giveUpAt)
	}
}

// timeUp withdraws t. What was never posted never will be; what was is not sent
// again, and may have been delivered.
func (e *Engine) timeUp(t *txMsg) {
	if sl := t.slot; t.inQ.on() { // same host, or no room for one more peer
		e.localDone(t, conn.Withdrawn)
		e.stopWaiting(sl)
		return
	}
	p := t.slot.peer
	if o, later := p.c.GiveUp(&t.m); later {
		e.settle(t, o)
	}
	e.touch(p)
}
