package rdmaop

import (
	"errors"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
)

// ErrInFlight: an operation in flight uses a key, so the state cannot be handed over. The
// engine is not halted.
var ErrInFlight = errors.New("rdmaop: an operation is in flight")

// mostKeys bounds the keys of a table that is read.
const mostKeys = 1 << 24

// Encode returns the state that a Grants needs that takes g's place in another process, in a
// version of internal/handover. No operation may be in flight. ErrInFlight.
func (g *Grants) Encode(version uint16) ([]byte, error) { return handover.Encode(version, g.handOver) }

// Adopt has g, which is new, go on from a state that Encode returned. A table that has more
// entries than g's limit is taken over whole, and takes no more. After an error, that the
// state is none or cannot be, g must not be used.
func (g *Grants) Adopt(state []byte) error { return handover.Adopt(state, g.handOver) }

func (g *Grants) handOver(s *handover.State) {
	keys := lists.Sorted(maps.Keys(g.keys)) // in order, so that the same state has the same bytes
	for i := range s.Count(len(keys), mostKeys, 8+8+2+4+4+1+4+4+4) {
		k := g.keys[handover.Nth(s, keys, i)]
		if s.Reads() {
			k = g.newKey()
		} else if k.inFlight > 0 || k.state == keyRevoking {
			s.Refuse(ErrInFlight)
		}
		s.U64(&k.cookie)
		s.U64(&k.len)
		s.U16(&k.owner.Port)
		s.U32(&k.owner.Inc)
		s.U32(&k.region)
		s.U8((*uint8)(&k.state))
		handover.As32(s, &k.lanes)
		handover.As32(s, &k.heard)
		rkey := uint32(k.cookie)
		for i := range handover.Slice(s, &k.ports, 1<<16, 2+4) {
			s.U16(&k.ports[i])
			h := holder{rkey, k.ports[i]}
			rights, known := g.grants[h]
			if s.U32((*uint32)(&rights)); s.Reads() {
				if known {
					s.Fail("key %#x is granted to port %d twice", rkey, h.port)
				}
				g.grants[h] = rights
			}
		}
		if s.Reads() && !g.keep(s, rkey, k) {
			return
		}
	}
}

// keep checks and keeps a key that was read. It returns false if s has failed.
func (g *Grants) keep(s *handover.State, rkey uint32, k *key) bool {
	granted, partly := len(k.ports) > 0, k.lanes > 1 && k.heard > 0 && k.heard < k.lanes
	switch whole := k.lanes == 0 && k.heard == 0; {
	case g.keys[rkey] != nil:
		s.Fail("key %#x is there twice", rkey)
	case k.state == keyLive && granted && whole, k.state == keyUsed && !granted && whole, k.state == keyTaken && !granted && partly:
	default:
		s.Fail("key %#x is in state %d, granted to %d ports, and taken back on %d of %d lanes", rkey, k.state, len(k.ports), k.heard, k.lanes)
	}
	if s.Err() != nil {
		return false
	}
	if k.state != keyLive {
		g.kept++
	}
	g.keys[rkey] = k
	return true
}

// Encode returns the state that an Export needs that takes e's place in another process, in
// which peers have the same keys, in a version of internal/handover.
func (e *Export) Encode(version uint16) ([]byte, error) {
	return handover.Encode(version, func(s *handover.State) { e.handOver(s, nil) })
}

// Adopt has e go on from a state that Encode returned. known reports whether there is a peer
// with a key. After an error, that the state is none or cannot be, e must not be used.
func (e *Export) Adopt(state []byte, known func(verbs.PeerKey) bool) error {
	e.Reset()
	return handover.Adopt(state, func(s *handover.State) { e.handOver(s, known) })
}

func (e *Export) handOver(s *handover.State, known func(verbs.PeerKey) bool) {
	s.U8((*uint8)(&e.state))
	for i := range s.Count(len(e.grants), MaxGrantees, 8+2) {
		g := handover.Nth(s, e.grants, i)
		s.U64((*uint64)(&g.peer))
		if s.U16(&g.port); !s.Reads() {
			continue
		}
		if i, twice := e.find(g.peer, g.port); twice || i < len(e.grants) || !known(g.peer) {
			s.Fail("a grant to port %d of peer %d, which is not known, granted twice, or out of order", g.port, g.peer)
		}
		e.grants = append(e.grants, g)
	}
	for i := range s.Count(len(e.waiting), MaxGrantees, 8) {
		k := handover.Nth(s, e.waiting, i)
		if s.U64((*uint64)(&k)); !s.Reads() {
			continue
		}
		if i > 0 && k <= e.waiting[i-1] || !known(k) {
			s.Fail("peer %d is waited for, which is not known, waited for twice, or out of order", k)
		}
		e.waiting = append(e.waiting, k)
	}
	s.I64(&e.deadline)
	s.Bool(&e.broken)
	switch {
	case e.state == ExportLive && len(e.waiting) == 0 && !e.broken:
	case e.state == ExportRevoking && len(e.waiting) > 0:
		for _, g := range e.grants {
			if !e.Waits(g.peer) {
				s.Fail("peer %d is not waited for and has a grant of a key that is being taken back", g.peer)
			}
		}
	default:
		s.Fail("an export in state %d that waits for %d peers", e.state, len(e.waiting))
	}
}

// Encode returns the state of o in a version of internal/handover: all but Segs, whose local
// keys another device would not know. o must not be in flight. ErrInFlight.
func (o *Op) Encode(version uint16) ([]byte, error) { return handover.Encode(version, o.handOver) }

// Adopt has o, which is new, go on from a state that Encode returned. The caller then sets
// Segs and may ask Validate. After an error, that the state is none or cannot be, o must not
// be used.
func (o *Op) Adopt(state []byte) error {
	o.Reset()
	return handover.Adopt(state, o.handOver)
}

func (o *Op) handOver(s *handover.State) {
	if o.key != nil {
		s.Refuse(ErrInFlight)
	}
	s.U8((*uint8)(&o.Kind))
	s.U16((*uint16)(&o.Flags))
	s.U64s(&o.Cookie, &o.RemoteOff, &o.Len)
	s.U64s(&o.Atomic.CompareAdd, &o.Atomic.Swap, &o.Atomic.CompareMask, &o.Atomic.SwapMask)
	s.U64s(&o.Token, &o.ID)
	s.U8((*uint8)(&o.state))
	s.U8((*uint8)(&o.status))
	errno := o.errno
	if o.status == abi.StatusDropped && s.Version() < 5 {
		errno = 0
	}
	if handover.As32(s, &errno); s.Reads() {
		o.errno = errno
	}
	s.U32(&o.region)
	known := o.state == StateTold || o.state == StateSettled
	refused := o.state == StateSettled && o.status == abi.StatusRemoteError
	nobody := known && o.status == abi.StatusDropped && o.errno == unix.ECONNREFUSED && s.Version() >= 5
	switch {
	case (o.Kind < abi.OpWrite || o.Kind > abi.OpCmpSwap) && o.state != StateSettled: // settled: it was refused because of its kind
		s.Fail("an operation of kind %d in state %d", o.Kind, o.state)
	case o.state >= numStates, o.status > abi.StatusUnknown, !known && o.status != 0,
		o.errno != 0 && !refused && !nobody:
		s.Fail("an operation in state %d with status %d and errno %d", o.state, o.status, o.errno)
	}
}
