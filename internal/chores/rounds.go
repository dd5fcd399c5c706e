package chores

import "github.com/rdsd/rdsd/internal/lists"

// Rounds is a list whose elements are all looked at now and then, in turns. An element may
// be looked at twice in a round, so the look must do no harm then.
type Rounds[T any] struct {
	lists.List[T]
	left int // so many from the head on are still to be looked at
}

// Begin has every element that is on the list now looked at.
func (a *Rounds[T]) Begin() { a.left = a.N }

// Left returns how many are still to be looked at.
func (a *Rounds[T]) Left() int { return min(a.left, a.N) }

// Next returns the next one to look at, nil if none is left.
func (a *Rounds[T]) Next() *T {
	if a.left = a.Left(); a.left == 0 {
		return nil
	}
	a.left--
	x := a.Head.Of
	a.TurnOver()
	return x
}

// Work is a list whose elements each need something done, a part in each turn.
type Work[T any] struct {
	lists.List[T]
	Chore
}
