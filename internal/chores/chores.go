// Package chores does work on lists that a client or a peer can make long. Such a list is not
// walked in one turn. A chore is work on such a list: a turn does a part of it, and the next
// turn goes on where that one stopped. All chores share the budget of a turn and take turns, so
// none waits for the end of another. One goroutine uses all of it.
package chores

import (
	"math"

	"github.com/rdsd/rdsd/internal/lists"
)

// Budget is how much one turn looks at for chores: messages, destinations,
// sockets, regions and their grants, buffers. See Besides for what is no chore.
const Budget = 1024

// Slice is how much one chore does before it is the next one's turn.
const Slice = 64

// Chores are the chores that were begun and are not done. The zero value has none, and
// nothing of a turn's budget.
type Chores struct {
	open lists.List[Chore]
	left int // of this turn's budget

	Most int // the most that a turn has used of it
	All  int // what all turns have used
}

// Chore is one such piece of work. One does a unit of it, and reports whether there was any. A
// unit that has a varying number of parts asks MayLook for each, and goes on later.
type Chore struct {
	One func() bool
	in  lists.Link[Chore] // Chores.open
}

// Open returns how many chores were begun and are not done.
func (a *Chores) Open() int { return a.open.N }

// Renew gives another turn's budget.
func (a *Chores) Renew() {
	a.Most = max(a.Most, Budget-a.left)
	a.left = Budget
}

// looks reports whether something of the turn's budget is left.
func (a *Chores) looks() bool { return a.left > 0 }

// MayLook reports whether this turn may look at n more, and counts them: it goes
// beyond its budget by what cannot be divided.
func (a *Chores) MayLook(n int) bool {
	if !a.looks() {
		return false
	}
	a.left -= n
	a.All += n
	return true
}

// Spend takes n of the turn's budget, for what had to be looked at in any case.
func (a *Chores) Spend(n int) { a.left -= n }

// Begin has c done: what this turn still allows at once, for the caller may be in
// the middle of something that no other chore may disturb, and the rest later.
func (a *Chores) Begin(c *Chore) {
	for a.looks() {
		if !a.slice(c) {
			a.open.Del(&c.in)
			return
		}
	}
	a.Later(c)
}

// Later has c done, but nothing of it now: the caller is inside an up-call.
func (a *Chores) Later(c *Chore) {
	if !c.in.On() {
		a.open.Add(&c.in, c)
	}
}

// Run goes on with what other turns have begun, as much as this one allows.
func (a *Chores) Run() (work bool) {
	for a.open.N > 0 && a.looks() {
		c := a.open.Head.Of
		a.open.Del(&c.in)
		if a.slice(c) {
			a.open.Add(&c.in, c)
		}
		work = true
	}
	return work
}

// Finish does all that there is, whatever the budget.
func (a *Chores) Finish() {
	a.left = math.MaxInt
	a.Run()
}

// slice does units of c, as many as a slice and the turn's budget allow. false: nothing is left.
func (a *Chores) slice(c *Chore) bool {
	for range Slice {
		if !a.MayLook(1) {
			return true
		}
		if !c.One() {
			return false
		}
	}
	return true
}

// Besides does units of work that each turn looks at and that is no chore. It may always do a
// slice: if it had only what the chores leave of the budget, it would wait as long as there are
// chores. false: nothing is left.
func (a *Chores) Besides(one func() bool) bool {
	for n := 0; n < Slice || a.looks(); n++ {
		a.left--
		a.All++
		if !one() {
			return false
		}
	}
	return true
}
