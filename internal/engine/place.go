package engine

import (
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/stats"
)

// A destination that leads to a peer, or to a port of this host, has a place.
// quota.destinations bounds the places of a user, over all processes. A destination needs a
// place only for its messages. If no place is left, a destination with nothing in progress
// gives its place to one with messages, and takes another when it gets a message again.
// Without a place, a destination gets no news of its peer and is not congested. With a
// message that finds no place it is congested, and its messages wait.

// openPlace gives sl, new, a place if one is left.
func (e *Engine) openPlace(sl *slot) {
	if a := sl.cl.acct; a.waiting.N == 0 && uint64(a.dests) < sl.cl.user.Quota[config.Destinations] {
		e.takePlace(sl)
	}
}

// needPlace finds a place for sl, which has a message now. Without one sl waits
// behind the others of its user.
func (e *Engine) needPlace(sl *slot) {
	a := sl.cl.acct
	if a.waiting.N == 0 && e.freePlace(sl) {
		e.takePlace(sl)
		return
	}
	e.st.C[stats.QuotaRefused]++
	e.setSlotCongested(sl, true)
	sl.leadTo(&a.waiting)
	e.placesWanted(a)
}

// freePlace reports whether there is a place for sl, after another destination
// gave one up if need be.
func (e *Engine) freePlace(sl *slot) bool {
	a := sl.cl.acct
	return uint64(a.dests) < sl.cl.user.Quota[config.Destinations] || e.giveWay(a)
}

func (e *Engine) takePlace(sl *slot) {
	sl.cl.acct.dests++
	sl.counted = true
	e.mayGiveWay(sl)
	e.home(sl)
}

// mayGiveWay lists sl if it has nothing under way.
func (e *Engine) mayGiveWay(sl *slot) {
	a := sl.cl.acct
	if sl.msgs > 0 || !sl.counted || sl.inIdle.On() {
		return
	}
	a.idle.Add(&sl.inIdle, sl)
	if a.waiting.N > 0 {
		e.placesWanted(a)
	}
}

// idleLooks: how many destinations at most are looked at for one to give way.
const idleLooks = 64

// giveWay takes the place of a destination that has nothing under way, the one
// that has been so longest, roughly: one that was used since the last look stays
// for another round. false: none was found.
func (e *Engine) giveWay(a *account) bool {
	if mutant.On(mutant.IdleKeepsPlace) {
		return false
	}
	for range min(2*a.idle.N, idleLooks) {
		if a.idle.N == 0 {
			break
		}
		sl := a.idle.Head.Of
		a.idle.Del(&sl.inIdle)
		switch {
		case sl.msgs > 0: // listed again when it has nothing under way
		case sl.used:
			sl.used = false
			a.idle.Add(&sl.inIdle, sl)
		default:
			e.leavePlace(sl)
			return true
		}
	}
	return false
}

// leavePlace has sl lead nowhere.
func (e *Engine) leavePlace(sl *slot) {
	e.refresh(sl)
	sl.counted = false
	sl.cl.acct.dests--
	sl.leadTo(nil)
	if l := sl.local; l != nil {
		sl.local = nil
		l.forget(sl.port)
	}
	if p := sl.peer; p != nil {
		sl.leaveTurn()
		sl.peer = nil
		e.dropIfNew(p)
	}
	e.setSlotCongested(sl, false)
}

// destClosed ends sl's count and leads those that wait to where they go.
func (e *Engine) destClosed(sl *slot) {
	a := sl.cl.acct
	a.idle.Del(&sl.inIdle)
	if !sl.counted {
		return
	}
	sl.counted = false
	a.dests--
	if a.waiting.N > 0 {
		e.placesWanted(a)
	}
}

// placesWanted has the places of a looked at in the next turn.
func (e *Engine) placesWanted(a *account) {
	if !a.inWanted.On() {
		e.users.wanted.Add(&a.inWanted, a)
	}
}

// givePlaces gives places to the destinations that wait, oldest first, as long
// as there are any.
func (e *Engine) givePlaces(a *account) {
	if e.chores.besides(func() bool {
		if a.waiting.N == 0 {
			return false
		}
		switch sl := a.waiting.Head.Of; {
		case sl.cl.dead || sl.sock.closed: // about to close, too
			sl.leadTo(nil)
		case !e.freePlace(sl):
			return false
		default:
			e.takePlace(sl)
		}
		return true
	}) {
		e.placesWanted(a)
	}
}

// placesGiven is givePlaces for all users that want some, once a turn. A user's
// stays wanted while there are destinations that were not looked at.
func (e *Engine) placesGiven() (work bool) {
	for range e.users.wanted.N {
		a := e.users.wanted.Head.Of
		e.users.wanted.Del(&a.inWanted)
		e.givePlaces(a)
		if a.waiting.N > 0 && a.idle.N > 0 {
			e.placesWanted(a)
		}
		work = true
	}
	return work
}
