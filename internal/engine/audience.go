package engine

import "github.com/rdsd/rdsd/internal/chores"

// audience is the destinations that lead to one peer, or to one port of this host.
type audience struct {
	chores.Rounds[slot]
	chores.Chore
}

// tell brings all destinations of a up to date with what they lead to.
func (ds *destinations) tell(a *audience) {
	e := ds.e
	if a.N == 0 {
		return
	}
	if a.One == nil {
		a.One = func() bool {
			sl := a.Next()
			if sl != nil {
				ds.refresh(sl)
			}
			return sl != nil
		}
	}
	a.Begin()
	e.chores.Begin(&a.Chore)
}

// refresh brings sl up to date with what it leads to.
func (ds *destinations) refresh(sl *slot) {
	ds.e.rx.setSlotCongested(sl, sl.way.inform(sl))
}
