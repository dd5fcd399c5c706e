package rdmaop

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// MaxGrantees is how many (peer, port) pairs one region can be granted to.
const MaxGrantees = 1024

// ExportState is how far a region's export has come.
type ExportState uint8

const (
	ExportLive     ExportState = iota // may be granted and used
	ExportRevoking                    // peers were asked to give the key back
	ExportRevoked                     // no peer can use the key: it may be deregistered
)

func (s ExportState) String() string {
	switch s {
	case ExportLive:
		return "Live"
	case ExportRevoking:
		return "Revoking"
	case ExportRevoked:
		return "Revoked"
	}
	return "invalid state"
}

// Export is the target's side of one region: the peers that were granted its key,
// and those that have yet to give it back. The zero value is a live export, granted
// to nobody. An Export has one owner.
type Export struct {
	state    ExportState
	grants   []grantee       // by peer, then port
	waiting  []verbs.PeerKey // asked to give the key back, not answered; in order
	deadline int64
	broken   bool // Timeout has given up on waiting
}

type grantee struct {
	peer verbs.PeerKey
	port uint16
}

// exportEvent is an event that may change the state of an Export.
type exportEvent uint8

const (
	exRevoke   exportEvent = iota // Revoke
	exAnswered                    // one peer less to wait for
)

// step changes the state of e. No other function does.
func (e *Export) step(ev exportEvent) {
	switch {
	case ev == exRevoke && e.state == ExportLive:
		e.state = ExportRevoking
	case ev == exAnswered && e.state == ExportRevoking:
	default:
		return
	}
	if e.state == ExportRevoking && len(e.waiting) == 0 {
		e.state = ExportRevoked
	}
}

// find returns the place of the grant of port of peer in the list, and whether it is
// there.
func (e *Export) find(peer verbs.PeerKey, port uint16) (int, bool) {
	return slices.BinarySearchFunc(e.grants, grantee{peer, port}, func(a, b grantee) int {
		return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.port, b.port))
	})
}

// of returns the places of the first grant of peer and of the one behind its last.
func (e *Export) of(peer verbs.PeerKey) (from, to int) {
	from, _ = e.find(peer, 0)
	to, _ = e.find(peer+1, 0)
	return from, to
}

// Reset makes e a live export that is granted to nobody. It keeps its memory.
func (e *Export) Reset() { *e = Export{grants: e.grants[:0], waiting: e.waiting[:0]} }

// State returns how far e has come.
func (e *Export) State() ExportState { return e.state }

// GrantTo notes that the socket at port of peer may use the region. AnyPort stands
// for every socket of the peer. needGrant says that a GRANT has to be sent, ahead of
// whatever carries the cookie; without it the peer has the grant already. EINVAL:
// the region is being revoked. ENOBUFS: it is granted to MaxGrantees already.
func (e *Export) GrantTo(peer verbs.PeerKey, port uint16) (needGrant bool, errno unix.Errno) {
	if e.state != ExportLive {
		return false, unix.EINVAL
	}
	if e.Granted(peer, port) {
		return false, 0
	}
	if len(e.grants) >= MaxGrantees {
		return false, unix.ENOBUFS
	}
	i, _ := e.find(peer, port)
	e.grants = slices.Insert(e.grants, i, grantee{peer, port})
	return true, 0
}

// Ungrant notes that a grant has no effect: it was withdrawn before it was sent, or
// the peer refused it. It reports whether there was such a grant.
func (e *Export) Ungrant(peer verbs.PeerKey, port uint16) bool {
	i, ok := e.find(peer, port)
	if ok {
		e.grants = slices.Delete(e.grants, i, i+1)
	}
	return ok
}

// Revoke starts to take the key back, and appends to dst the peers that need a
// REVOKE. From deadline on Timeout gives up on peers that have not answered. If the
// key was granted to nobody, the state is ExportRevoked at once. Only the first call
// has an effect.
func (e *Export) Revoke(dst []verbs.PeerKey, deadline int64) []verbs.PeerKey {
	if e.state != ExportLive {
		return dst
	}
	e.deadline = deadline
	for i, g := range e.grants {
		if i == 0 || g.peer != e.grants[i-1].peer {
			e.waiting = append(e.waiting, g.peer)
		}
	}
	e.step(exRevoke)
	return append(dst, e.waiting...)
}

// Grants returns how many grants of the key exist.
func (e *Export) Grants() int { return len(e.grants) }

// Each calls f with each grant of the key, by peer and port.
func (e *Export) Each(f func(peer verbs.PeerKey, port uint16)) {
	for _, g := range e.grants {
		f(g.peer, g.port)
	}
}

// Waits reports whether peer was asked to give the key back and has not.
func (e *Export) Waits(peer verbs.PeerKey) bool {
	_, ok := slices.BinarySearch(e.waiting, peer)
	return ok
}

// Waiting returns the peers that were asked to give the key back and have not. The
// slice belongs to e: it must not be changed, and is valid until the next call.
func (e *Export) Waiting() []verbs.PeerKey { return e.waiting }

// PeerRevoked notes peer's REVOKED and returns how many grants have ended with it. A
// REVOKED that was not waited for changes nothing.
func (e *Export) PeerRevoked(peer verbs.PeerKey) (ended int) {
	i, ok := slices.BinarySearch(e.waiting, peer)
	if !ok {
		return 0
	}
	e.waiting = slices.Delete(e.waiting, i, i+1)
	ended = e.drop(peer)
	e.step(exAnswered)
	return ended
}

// PeerGone notes that peer restarted, or that its queue pair was destroyed: its
// grants have ended. It returns how many those are. If e is live, the peer needs a
// new grant to use the region.
func (e *Export) PeerGone(peer verbs.PeerKey) (ended int) {
	ended = e.drop(peer)
	e.PeerRevoked(peer)
	return ended
}

// PeersGone is PeerGone of all peers whose keys are at least from and below before.
func (e *Export) PeersGone(from, before verbs.PeerKey) (ended int) {
	first, _ := e.find(from, 0)
	last, _ := e.find(before, 0)
	e.grants = slices.Delete(e.grants, first, last)
	w, _ := slices.BinarySearch(e.waiting, from)
	v, _ := slices.BinarySearch(e.waiting, before)
	if e.waiting = slices.Delete(e.waiting, w, v); w < v {
		e.step(exAnswered)
	}
	return last - first
}

// drop ends the grants of peer and returns how many there were.
func (e *Export) drop(peer verbs.PeerKey) int {
	from, to := e.of(peer)
	e.grants = slices.Delete(e.grants, from, to)
	return to - from
}

// Timeout appends to dst the peers that have not given the key back by the deadline,
// once. The owner has to break off their queue pairs and call PeerGone.
func (e *Export) Timeout(dst []verbs.PeerKey, now int64) []verbs.PeerKey {
	if e.state != ExportRevoking || e.broken || now < e.deadline {
		return dst
	}
	e.broken = true
	return append(dst, e.waiting...)
}

// Deadline returns when Timeout is due; false if it is not going to be.
func (e *Export) Deadline() (int64, bool) {
	return e.deadline, e.state == ExportRevoking && !e.broken
}

// Granted reports whether the socket at port of peer may use the region now. It is
// for a peer on this host; a remote initiator asks its Grants.
func (e *Export) Granted(peer verbs.PeerKey, port uint16) bool {
	if e.state != ExportLive {
		return false
	}
	_, ok := e.find(peer, port)
	if !ok {
		_, ok = e.find(peer, AnyPort)
	}
	return ok
}
