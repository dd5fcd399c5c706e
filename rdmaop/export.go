package rdmaop

import (
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

// Export is the target's side of one region: who was granted its key and who
// has still to give it back. The zero value is a live export granted to
// nobody. An Export has one owner.
type Export struct {
	state    ExportState
	grants   []grantee
	waiting  []verbs.PeerKey // told to give the key back, not answered
	deadline int64
	broken   bool // Timeout has given up on waiting
}

type grantee struct {
	peer verbs.PeerKey
	port uint16
}

// exportEvent is what moves an Export's state.
type exportEvent uint8

const (
	exRevoke   exportEvent = iota // Revoke
	exAnswered                    // one peer less to wait for
)

// step is the one place where e's state changes.
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
		e.grants = e.grants[:0]
	}
}

// Reset makes e a live export granted to nobody, keeping its memory.
func (e *Export) Reset() { *e = Export{grants: e.grants[:0], waiting: e.waiting[:0]} }

// State returns how far e has come.
func (e *Export) State() ExportState { return e.state }

// GrantTo notes that the socket at port of peer (AnyPort: every socket there)
// may use the region. needGrant: a GRANT has to be sent ahead of whatever
// carries the cookie; false: the peer has it already. EINVAL: being revoked;
// ENOBUFS: granted to MaxGrantees already.
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
	e.grants = append(e.grants, grantee{peer, port})
	return true, 0
}

// Revoke starts taking the key back and appends to dst the peers that need a
// REVOKE. From deadline on Timeout gives up on those that have not answered.
// With nobody to tell the state is ExportRevoked at once. Only the first call
// has an effect.
func (e *Export) Revoke(dst []verbs.PeerKey, deadline int64) []verbs.PeerKey {
	if e.state != ExportLive {
		return dst
	}
	e.deadline = deadline
	for _, g := range e.grants {
		if !slices.Contains(e.waiting, g.peer) {
			e.waiting = append(e.waiting, g.peer)
		}
	}
	e.step(exRevoke)
	return append(dst, e.waiting...)
}

// Grants counts who was granted the key and may have it.
func (e *Export) Grants() int { return len(e.grants) }

// Held counts the grants of peer.
func (e *Export) Held(peer verbs.PeerKey) (n int) {
	for _, g := range e.grants {
		if g.peer == peer {
			n++
		}
	}
	return n
}

// Waits reports whether peer was asked to give the key back and has not yet.
func (e *Export) Waits(peer verbs.PeerKey) bool { return slices.Contains(e.waiting, peer) }

// PeerRevoked notes peer's REVOKED and returns the state. One that was not
// waited for changes nothing.
func (e *Export) PeerRevoked(peer verbs.PeerKey) ExportState {
	if i := slices.Index(e.waiting, peer); i >= 0 {
		e.waiting = slices.Delete(e.waiting, i, i+1)
		e.step(exAnswered)
	}
	return e.state
}

// PeerGone notes that peer restarted, or that its queue pair was broken off
// and destroyed: what it was granted is void. It returns the state. A live
// export needs a new grant for it.
func (e *Export) PeerGone(peer verbs.PeerKey) ExportState {
	e.grants = slices.DeleteFunc(e.grants, func(g grantee) bool { return g.peer == peer })
	return e.PeerRevoked(peer)
}

// Timeout appends to dst, once, the peers that have not given the key back by
// the deadline: their queue pairs have to be broken off, and PeerGone called.
func (e *Export) Timeout(dst []verbs.PeerKey, now int64) []verbs.PeerKey {
	if e.state != ExportRevoking || e.broken || now < e.deadline {
		return dst
	}
	e.broken = true
	return append(dst, e.waiting...)
}

// Deadline returns when Timeout has something to do; false if it has not.
func (e *Export) Deadline() (int64, bool) {
	return e.deadline, e.state == ExportRevoking && !e.broken
}

// Granted reports whether the socket at port of peer may use the region now:
// what the initiator's Grants check is on the wire, for a peer on this host.
func (e *Export) Granted(peer verbs.PeerKey, port uint16) bool {
	if e.state != ExportLive {
		return false
	}
	for _, g := range e.grants {
		if g.peer == peer && (g.port == port || g.port == AnyPort) {
			return true
		}
	}
	return false
}
