package engine

import "github.com/rdsd/rdsd/internal/mutant"

// What a client or a peer can make long is not walked in one turn. A chore is
// work that goes on where it stopped, in one turn after another. All chores share
// the budget of a turn, and take turns: none waits for another that is long.

// choreBudget is how much one turn looks at for chores: messages, destinations,
// sockets, regions and their grants, buffers. See besides for what is no chore.
const choreBudget = 1024

// renew gives the engine another turn's budget for chores.
func (e *Engine) renew() {
	e.choreMost = max(e.choreMost, choreBudget-e.choreLeft)
	e.choreLeft = choreBudget
}

// looks reports whether something of the turn's budget is left.
func (e *Engine) looks() bool { return e.choreLeft > 0 || mutant.On(mutant.EndUnbounded) }

// mayLook reports whether this turn may look at n more, and counts them: it goes
// beyond its budget by what cannot be divided.
func (e *Engine) mayLook(n int) bool {
	if !e.looks() {
		return false
	}
	e.choreLeft -= n
	e.choreAll += n
	return true
}

// chore is one piece of such work. Its step does some of it while mayLook allows,
// and reports whether any is left.
type chore struct {
	in   link[chore] // Engine.chores
	step func() bool
}

// begin has c done: what this turn still allows at once, for the caller may be in
// the middle of something that no other chore may disturb, and the rest later.
func (e *Engine) begin(c *chore) {
	for e.looks() {
		if !c.step() {
			e.chores.del(&c.in)
			return
		}
	}
	if !c.in.on() {
		e.chores.add(&c.in, c)
	}
}

// runChores goes on with what other turns have begun, as much as this one allows.
func (e *Engine) runChores() (work bool) {
	for e.chores.n > 0 && e.choreLeft > 0 {
		c := e.chores.head.of
		e.chores.del(&c.in)
		if c.step() {
			e.chores.add(&c.in, c)
		}
		work = true
	}
	return work
}

// choreSlice is how much one chore does before it is the next one's turn.
const choreSlice = 64

// inSlices calls one, which does a unit of work and reports whether there was
// any, as often as a slice and the turn's budget allow. false: nothing is left.
func (e *Engine) inSlices(one func() bool) bool {
	for range choreSlice {
		if !e.mayLook(1) {
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
func (e *Engine) besides(one func() bool) bool {
	for n := 0; n < choreSlice && !mutant.On(mutant.ChoresFirst) || e.looks(); n++ {
		e.choreLeft--
		e.choreAll++
		if !one() {
			return false
		}
	}
	return true
}

// rounds is a list of which all elements are looked at now and then, in turns.
// The look must do no harm if it comes twice.
type rounds[T any] struct {
	list[T]
	left int // so many from the head on are still to be looked at
}

// all has every element that is on the list now looked at.
func (a *rounds[T]) all() { a.left = a.n }

// next returns the next one to look at, nil if none is left.
func (a *rounds[T]) next() *T {
	if a.left = min(a.left, a.n); a.left == 0 {
		return nil
	}
	a.left--
	x := a.head.of
	a.turnOver()
	return x
}
