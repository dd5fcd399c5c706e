package engine

import "github.com/rdsd/rdsd/internal/lists"

// A list that a client or a peer can make long is not walked in one turn. A chore is work
// on such a list: a turn does a part of it, and the next turn goes on where that one
// stopped. All chores share the budget of a turn and take turns, so none waits for the end
// of another.

// choreBudget is how much one turn looks at for chores: messages, destinations,
// sockets, regions and their grants, buffers. See besides for what is no chore.
const choreBudget = 1024

// chores are the chores that were begun and are not done. The zero value has none, and
// nothing of a turn's budget.
type chores struct {
	lists.List[chore]
	left int // of this turn's budget
	most int // the most that a turn has used of it
	all  int // what all turns have used
}

// renew gives the engine another turn's budget for chores.
func (a *chores) renew() {
	a.most = max(a.most, choreBudget-a.left)
	a.left = choreBudget
}

// looks reports whether something of the turn's budget is left.
func (a *chores) looks() bool { return a.left > 0 }

// mayLook reports whether this turn may look at n more, and counts them: it goes
// beyond its budget by what cannot be divided.
func (a *chores) mayLook(n int) bool {
	if !a.looks() {
		return false
	}
	a.left -= n
	a.all += n
	return true
}

// chore is one such piece of work. Its one does a unit of it, and reports whether there was
// any. A unit that has a varying number of parts asks mayLook for each, and goes on later.
type chore struct {
	in  lists.Link[chore] // Engine.chores
	one func() bool
}

// begin has c done: what this turn still allows at once, for the caller may be in
// the middle of something that no other chore may disturb, and the rest later.
func (a *chores) begin(c *chore) {
	for a.looks() {
		if !a.inSlices(c.one) {
			a.Del(&c.in)
			return
		}
	}
	if !c.in.On() {
		a.Add(&c.in, c)
	}
}

// later has c done, but nothing of it now: the caller is inside an up-call.
func (a *chores) later(c *chore) {
	if !c.in.On() {
		a.Add(&c.in, c)
	}
}

// run goes on with what other turns have begun, as much as this one allows.
func (a *chores) run() (work bool) {
	for a.N > 0 && a.left > 0 {
		c := a.Head.Of
		a.Del(&c.in)
		if a.inSlices(c.one) {
			a.Add(&c.in, c)
		}
		work = true
	}
	return work
}

// choreSlice is how much one chore does before it is the next one's turn.
const choreSlice = 64

// inSlices calls one, which does a unit of work and reports whether there was
// any, as often as a slice and the turn's budget allow. false: nothing is left.
func (a *chores) inSlices(one func() bool) bool {
	for range choreSlice {
		if !a.mayLook(1) {
			return true
		}
		if !one() {
			return false
		}
	}
	return true
}

// besides is inSlices for work that each turn looks at and that is no chore. It may
// always do a slice: if it had only what the chores leave of the budget, it would wait
// as long as there are chores.
func (a *chores) besides(one func() bool) bool {
	for n := 0; n < choreSlice || a.looks(); n++ {
		a.left--
		a.all++
		if !one() {
			return false
		}
	}
	return true
}

// rounds is a list whose elements are all looked at now and then, in turns. An element may
// be looked at twice in a round, so the look must do no harm then.
type rounds[T any] struct {
	lists.List[T]
	left int // so many from the head on are still to be looked at
}

// all has every element that is on the list now looked at.
func (a *rounds[T]) all() { a.left = a.N }

// next returns the next one to look at, nil if none is left.
func (a *rounds[T]) next() *T {
	if a.left = min(a.left, a.N); a.left == 0 {
		return nil
	}
	a.left--
	x := a.Head.Of
	a.TurnOver()
	return x
}

// work is a list whose elements each need something done, a part in each turn.
type work[T any] struct {
	lists.List[T]
	chore
}
