package engine

import "github.com/rdsd/rdsd/internal/chores"

// audience is the destinations that lead to one peer, or to one port of this host.
type audience struct {
	chores.Rounds[slot]
	chores.Chore
}

// tell brings all destinations of a up to date with what they lead to, and where paths have changed, has them lead
// to the connection of theirs.
func (ds *destinations) tell(a *audience) {
	e := ds.e
	if a.N == 0 {
		return
	}
	if a.One == nil {
		a.One = func() bool {
			sl := a.Next()
			if sl == nil {
				return false
			}
			ds.refresh(sl)
			if p, ok := sl.way.(*peer); ok {
				p.moveOn(sl)
			}
			return true
		}
	}
	a.Begin()
	e.chores.Begin(&a.Chore)
}

// refresh brings sl up to date with what it leads to.
func (ds *destinations) refresh(sl *slot) {
	ds.e.rx.setSlotCongested(sl, sl.way.inform(sl))
}
