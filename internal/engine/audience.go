package engine

// audience is the destinations that lead to one peer, or to one port of this host.
type audience struct {
	rounds[slot]
	chore
}

// tell brings all destinations of a up to date with what they lead to.
func (ds *destinations) tell(a *audience) {
	e := ds.e
	if a.N == 0 {
		return
	}
	if a.one == nil {
		a.one = func() bool {
			sl := a.next()
			if sl != nil {
				ds.refresh(sl)
			}
			return sl != nil
		}
	}
	a.all()
	e.chores.begin(&a.chore)
}

// refresh brings sl up to date with what it leads to.
func (ds *destinations) refresh(sl *slot) {
	ds.e.rx.setSlotCongested(sl, sl.way.inform(sl))
}
