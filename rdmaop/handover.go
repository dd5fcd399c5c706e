package rdmaop

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/verbs"
)

// ErrInFlight: an operation in flight uses a key, so the state cannot be handed over. The
// engine is not halted.
var ErrInFlight = errors.New("rdmaop: an operation is in flight")

// mostKeys bounds the keys of a table that is read.
const mostKeys = 1 << 24

// written returns what encode writes in a version of internal/handover.
func written(version uint16, encode func(*handover.Writer) error) ([]byte, error) {
	if version < handover.Oldest || version > handover.Newest {
		return nil, fmt.Errorf("rdmaop: hand over in version %d: there are %d to %d", version, handover.Oldest, handover.Newest)
	}
	w := handover.NewWriter(version)
	if err := encode(w); err != nil {
		return nil, err
	}
	return w.Bytes(), nil
}

// read has adopt read state, all of it.
func read(state []byte, adopt func(*handover.Reader)) error {
	r, err := handover.NewReader(state)
	if err != nil {
		return err
	}
	adopt(r)
	return r.Close()
}

// Encode returns the state that a Grants needs that takes g's place in another process, in a
// version of internal/handover. No operation may be in flight. ErrInFlight.
func (g *Grants) Encode(version uint16) ([]byte, error) { return written(version, g.encode) }

// Adopt has g, which is new, go on from a state that Encode returned. A table that has more
// entries than g's limit is taken over whole, and takes no more. After an error, that the
// state is none or cannot be, g must not be used.
func (g *Grants) Adopt(state []byte) error { return read(state, g.adopt) }

func (g *Grants) encode(w *handover.Writer) error {
	keys := slices.Sorted(maps.Keys(g.keys)) // in order, so that the same state has the same bytes
	if mutant.On(mutant.HandoverGrants) {
		keys = nil
	}
	w.Count(len(keys))
	for _, rkey := range keys {
		k := g.keys[rkey]
		if k.inFlight > 0 || k.state == keyRevoking {
			return ErrInFlight
		}
		w.U64(k.cookie)
		w.U64(k.len)
		w.U16(k.owner.Port)
		w.U32(k.owner.Inc)
		w.U32(k.region)
		w.U8(uint8(k.state))
		w.U32(uint32(k.lanes))
		w.U32(uint32(k.heard))
		w.Count(len(k.ports))
		for _, p := range k.ports {
			w.U16(p)
			w.U32(uint32(g.grants[holder{rkey, p}]))
		}
	}
	return nil
}

func (g *Grants) adopt(r *handover.Reader) {
	for range r.Count(mostKeys, 8+8+2+4+4+1+4+4+4) {
		k := g.newKey()
		k.cookie, k.len = r.U64(), r.U64()
		k.owner = Owner{Port: r.U16(), Inc: r.U32()}
		k.region, k.state = r.U32(), keyState(r.U8())
		k.lanes, k.heard = int(r.U32()), int(r.U32())
		rkey := uint32(k.cookie)
		for range r.Count(1<<16, 2+4) {
			h := holder{rkey, r.U16()}
			if _, twice := g.grants[h]; twice {
				r.Fail("key %#x is granted to port %d twice", rkey, h.port)
			}
			k.ports = append(k.ports, h.port)
			g.grants[h] = abi.Rights(r.U32())
		}
		granted, partly := len(k.ports) > 0, k.lanes > 1 && k.heard > 0 && k.heard < k.lanes
		switch whole := k.lanes == 0 && k.heard == 0; {
		case g.keys[rkey] != nil:
			r.Fail("key %#x is there twice", rkey)
		case k.state == keyLive && granted && whole, k.state == keyUsed && !granted && whole, k.state == keyTaken && !granted && partly:
		default:
			r.Fail("key %#x is in state %d, granted to %d ports, and taken back on %d of %d lanes", rkey, k.state, len(k.ports), k.heard, k.lanes)
		}
		if r.Err() != nil {
			return
		}
		if k.state != keyLive {
			g.kept++
		}
		g.keys[rkey] = k
	}
}

// Encode returns the state that an Export needs that takes e's place in another process, in
// which peers have the same keys, in a version of internal/handover.
func (e *Export) Encode(version uint16) ([]byte, error) { return written(version, e.encode) }

// Adopt has e go on from a state that Encode returned. known reports whether there is a peer
// with a key. After an error, that the state is none or cannot be, e must not be used.
func (e *Export) Adopt(state []byte, known func(verbs.PeerKey) bool) error {
	return read(state, func(r *handover.Reader) { e.adopt(r, known) })
}

func (e *Export) encode(w *handover.Writer) error {
	w.U8(uint8(e.state))
	grants := e.grants
	if mutant.On(mutant.HandoverExport) {
		grants = nil
	}
	w.Count(len(grants))
	for _, g := range grants {
		w.U64(uint64(g.peer))
		w.U16(g.port)
	}
	w.Count(len(e.waiting))
	for _, k := range e.waiting {
		w.U64(uint64(k))
	}
	w.I64(e.deadline)
	w.Bool(e.broken)
	return nil
}

func (e *Export) adopt(r *handover.Reader, known func(verbs.PeerKey) bool) {
	e.Reset()
	e.state = ExportState(r.U8())
	for range r.Count(MaxGrantees, 8+2) {
		g := grantee{verbs.PeerKey(r.U64()), r.U16()}
		if i, twice := e.find(g.peer, g.port); twice || i < len(e.grants) || !known(g.peer) {
			r.Fail("a grant to port %d of peer %d, which is not known, granted twice, or out of order", g.port, g.peer)
		}
		e.grants = append(e.grants, g)
	}
	for range r.Count(MaxGrantees, 8) {
		k := verbs.PeerKey(r.U64())
		if n := len(e.waiting); n > 0 && k <= e.waiting[n-1] || !known(k) {
			r.Fail("peer %d is waited for, which is not known, waited for twice, or out of order", k)
		}
		e.waiting = append(e.waiting, k)
	}
	e.deadline, e.broken = r.I64(), r.Bool()
	switch {
	case e.state == ExportLive && len(e.waiting) == 0 && !e.broken:
	case e.state == ExportRevoking && len(e.waiting) > 0:
		for _, g := range e.grants {
			if !e.Waits(g.peer) {
				r.Fail("peer %d is not waited for and has a grant of a key that is being taken back", g.peer)
			}
		}
	default:
		r.Fail("an export in state %d that waits for %d peers", e.state, len(e.waiting))
	}
}

// Encode returns the state of o in a version of internal/handover: all but Segs, whose local
// keys another device would not know. o must not be in flight. ErrInFlight.
func (o *Op) Encode(version uint16) ([]byte, error) { return written(version, o.encode) }

// Adopt has o, which is new, go on from a state that Encode returned. The caller then sets
// Segs and may ask Validate. After an error, that the state is none or cannot be, o must not
// be used.
func (o *Op) Adopt(state []byte) error { return read(state, o.adopt) }

func (o *Op) encode(w *handover.Writer) error {
	if o.key != nil {
		return ErrInFlight
	}
	w.U8(uint8(o.Kind))
	w.U16(uint16(o.Flags))
	w.U64(o.Cookie)
	w.U64(o.RemoteOff)
	w.U64(o.Len)
	w.U64(o.Atomic.CompareAdd)
	w.U64(o.Atomic.Swap)
	w.U64(o.Atomic.CompareMask)
	w.U64(o.Atomic.SwapMask)
	w.U64(o.Token)
	w.U64(o.ID)
	state := o.state
	if mutant.On(mutant.HandoverOpState) && state > StateQueued {
		state = StateQueued
	}
	w.U8(uint8(state))
	w.U8(uint8(o.status))
	w.U32(uint32(o.errno))
	w.U32(o.region)
	return nil
}

func (o *Op) adopt(r *handover.Reader) {
	o.Reset()
	o.Kind, o.Flags = abi.OpKind(r.U8()), abi.OpFlags(r.U16())
	o.Cookie, o.RemoteOff, o.Len = r.U64(), r.U64(), r.U64()
	o.Atomic = AtomicArgs{CompareAdd: r.U64(), Swap: r.U64(), CompareMask: r.U64(), SwapMask: r.U64()}
	o.Token, o.ID = r.U64(), r.U64()
	o.state, o.status, o.errno, o.region = State(r.U8()), abi.Status(r.U8()), unix.Errno(r.U32()), r.U32()
	known := o.state == StateTold || o.state == StateSettled
	switch {
	case (o.Kind < abi.OpWrite || o.Kind > abi.OpCmpSwap) && o.state != StateSettled: // settled: it was refused because of its kind
		r.Fail("an operation of kind %d in state %d", o.Kind, o.state)
	case o.state >= numStates, o.status > abi.StatusUnknown, !known && o.status != 0,
		o.errno != 0 && (o.state != StateSettled || o.status != abi.StatusRemoteError):
		r.Fail("an operation in state %d with status %d and errno %d", o.state, o.status, o.errno)
	}
}
