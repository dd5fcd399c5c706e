package engine

import (
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/stats"
)

// A destination that leads to a peer, or to a port of this host, has a place.
// quota.destinations bounds the places of a user, over all processes. A destination needs a
// place only for its messages. If no place is left, a destination with nothing in progress
// gives its place to one with messages, and takes another when it gets a message again.
// Without a place, a destination gets no news of its peer and is not congested. With a
// message that finds no place it is congested, and its messages wait.

// openPlace gives sl, new, a place if one is left.
func (ds *destinations) openPlace(sl *slot) {
	if a := sl.sock.cl.acct; a.waiting.N == 0 && uint64(a.dests) < sl.sock.cl.user.Quota[config.Destinations] {
		ds.takePlace(sl)
	}
}

// needPlace finds a place for sl, which has a message now. Without one sl waits
// behind the others of its user.
func (ds *destinations) needPlace(sl *slot) {
	e := ds.e
	a := sl.sock.cl.acct
	if a.waiting.N == 0 && ds.freePlace(sl) {
		ds.takePlace(sl)
		return
	}
	e.st.C[stats.QuotaRefused]++
	sl.leadTo(&a.waiting)
	ds.refresh(sl)
	ds.placesWanted(a)
}

// freePlace reports whether there is a place for sl, after another destination
// gave one up if need be.
func (ds *destinations) freePlace(sl *slot) bool {
	a := sl.sock.cl.acct
	return uint64(a.dests) < sl.sock.cl.user.Quota[config.Destinations] || ds.giveWay(a)
}

func (ds *destinations) takePlace(sl *slot) {
	sl.sock.cl.acct.dests++
	sl.counted = true
	ds.mayGiveWay(sl)
	ds.home(sl)
}

// home leads sl, which has a place, to where it goes, with the messages that wait in it; nowhere, if there
// is no room for one more peer.
func (ds *destinations) home(sl *slot) {
	w, _ := ds.wayTo(sl.sock, sl.addr)
	ds.leadBy(sl, w)
}

// mayGiveWay lists sl if it has nothing under way.
func (ds *destinations) mayGiveWay(sl *slot) {
	a := sl.sock.cl.acct
	if sl.msgs > 0 || !sl.counted || sl.inIdle.On() {
		return
	}
	a.idle.Add(&sl.inIdle, sl)
	if a.waiting.N > 0 {
		ds.placesWanted(a)
	}
}

// idleLooks: how many destinations at most are looked at for one to give way.
const idleLooks = 64

// giveWay takes the place of a destination that has nothing under way, the one
// that has been so longest, roughly: one that was used since the last look stays
// for another round. false: none was found.
func (ds *destinations) giveWay(a *account) bool {
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
			ds.leavePlace(sl)
			return true
		}
	}
	return false
}

// leavePlace has sl lead nowhere.
func (ds *destinations) leavePlace(sl *slot) {
	ds.refresh(sl)
	sl.counted = false
	sl.sock.cl.acct.dests--
	ds.leadBy(sl, &ds.nowhere)
}

// destClosed ends sl's count and leads those that wait to where they go.
func (ds *destinations) destClosed(sl *slot) {
	a := sl.sock.cl.acct
	a.idle.Del(&sl.inIdle)
	if !sl.counted {
		return
	}
	sl.counted = false
	a.dests--
	if a.waiting.N > 0 {
		ds.placesWanted(a)
	}
}

// placesWanted has the places of a looked at in the next turn.
func (ds *destinations) placesWanted(a *account) {
	if !a.inWanted.On() {
		ds.e.users.wanted.Add(&a.inWanted, a)
	}
}

// givePlaces gives places to the destinations that wait, oldest first, as long
// as there are any.
func (ds *destinations) givePlaces(a *account) {
	if ds.e.chores.Besides(func() bool {
		if a.waiting.N == 0 {
			return false
		}
		switch sl := a.waiting.Head.Of; {
		case sl.sock.cl.dead || sl.sock.closed: // about to close, too
			sl.leadTo(nil)
		case !ds.freePlace(sl):
			return false
		default:
			ds.takePlace(sl)
		}
		return true
	}) {
		ds.placesWanted(a)
	}
}

// placesGiven is givePlaces for all users that want some, once a turn. A user's
// stays wanted while there are destinations that were not looked at.
func (ds *destinations) placesGiven() (work bool) {
	e := ds.e
	for range e.users.wanted.N {
		a := e.users.wanted.Head.Of
		e.users.wanted.Del(&a.inWanted)
		ds.givePlaces(a)
		if a.waiting.N > 0 && a.idle.N > 0 {
			ds.placesWanted(a)
		}
		work = true
	}
	return work
}
