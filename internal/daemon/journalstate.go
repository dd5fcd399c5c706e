package daemon

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
)

// The journal goes over in version 2 of the state, so that rdsctl events and rdsctl errors know
// what was before an upgrade. After a state of version 1 it begins empty. The number of the last
// event is in the state's head, in both versions.

const (
	tagJournal = handover.TagDaemon + 3

	mostEvents      = 1 << 16 // in a state
	mostErrors      = 1 << 16
	mostErrText     = maxErrText + len(errCut)
	leastEventBytes = 8 + 4 + 4 + 4 + 4 + 1 + 8 + 4
	leastErrorBytes = 4 + 4 + 4 + 1 + 8 + 8 + 8 + 4
)

// copy returns what j holds now. Events are noted at any time, and a state needs one number and
// what belongs to it.
func (j *journal) copy() *journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &journal{seq: j.seq, before: j.before, ring: slices.Clone(j.ring), errors: maps.Clone(j.errors)}
	for k, e := range c.errors {
		one := *e
		c.errors[k] = &one
	}
	return c
}

// handOver has a copy of a journal go over, but for the number of its last event. A journal that is read
// follows another one, and nothing has been noted yet.
func (j *journal) handOver(s *handover.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.Begin(tagJournal)
	first, last := j.first(), j.seq
	n := s.Count(int(last+1-first), mostEvents, leastEventBytes)
	if s.Reads() {
		if uint64(n) > last || last > math.MaxUint64/2 {
			s.Fail("%d events, the last one is number %d", n, last)
			return
		}
		j.ring = make([]ctl.EventInfo, maxEvents)
		j.before = last - uint64(n)
		first = j.before + 1
	}
	for at := first; at <= last && s.Err() == nil; at++ {
		i := &j.ring[at%maxEvents]
		i.Seq = at
		handOverEvent(s, i)
	}
	j.handOverErrors(s)
	s.End()
	if s.Err() != nil {
		j.before, j.ring, j.errors = last, nil, nil
	}
}

// handOverErrors has the distinct errors go over. Guarded by mu.
func (j *journal) handOverErrors(s *handover.State) {
	all := slices.SortedFunc(maps.Values(j.errors), byKey) // so that the same journal has the same bytes
	if s.Reads() {
		j.errors = map[errorKey]*ctl.ErrorInfo{}
	}
	for i := range s.Count(len(all), mostErrors, leastErrorBytes) {
		e := handover.Nth(s, all, i)
		if s.Reads() {
			e = &ctl.ErrorInfo{}
		}
		if handOverError(s, e); !s.Reads() {
			continue
		}
		k := keyOf(e.Event, e.Peer, e.UID)
		if j.errors[k] != nil || e.Count == 0 || e.Count > j.seq {
			s.Fail("error %q is there twice, or %d times in %d events", e.Event, e.Count, j.seq)
		}
		if s.Err() != nil {
			return
		}
		j.errors[k] = e
	}
}

func handOverEvent(s *handover.State, i *ctl.EventInfo) {
	s.Time(&i.Time)
	s.String(&i.Level, maxLevelText)
	s.String(&i.Event, maxEventText)
	s.Addr(&i.Local)
	s.Addr(&i.Peer)
	handOverUID(s, &i.UID)
	s.Int(&i.PID, math.MaxInt32)
	s.String(&i.Error, mostErrText)
	if s.Version() >= 7 {
		handOverLane(s, i)
	}
}

// handOverLane has go over which connection an event is about.
func handOverLane(s *handover.State, i *ctl.EventInfo) {
	var at ctl.LanePath
	known := i.Lane != nil
	if known {
		at = ctl.LanePath{Lane: *i.Lane, Path: i.Path}
	}
	s.Bool(&known)
	s.U8(&at.Lane)
	s.U8(&at.Path)
	if !s.Reads() {
		return
	}
	if i.Lane, i.Path = nil, 0; known {
		i.Lane, i.Path = &at.Lane, at.Path
	}
}

func handOverError(s *handover.State, e *ctl.ErrorInfo) {
	s.String(&e.Event, maxEventText)
	s.String(&e.Level, maxLevelText)
	s.Addr(&e.Peer)
	handOverUID(s, &e.UID)
	s.U64(&e.Count)
	s.Time(&e.First)
	s.Time(&e.Last)
	s.String(&e.Error, mostErrText)
}

func handOverUID(s *handover.State, uid **uint32) {
	known := *uid != nil
	s.Bool(&known)
	if s.Reads() {
		*uid = nil // another event may have been at its place
	}
	if !known {
		return
	}
	if s.Reads() {
		*uid = new(uint32)
	}
	s.U32(*uid)
}

func byKey(a, b *ctl.ErrorInfo) int {
	uid := func(e *ctl.ErrorInfo) int64 {
		if e.UID == nil {
			return -1
		}
		return int64(*e.UID)
	}
	return cmp.Or(strings.Compare(a.Event, b.Event), a.Peer.Compare(b.Peer), cmp.Compare(uid(a), uid(b)))
}

// keyOf is what errors are told apart by.
func keyOf(event string, peer netip.Addr, uid *uint32) errorKey {
	k := errorKey{event: event}
	switch {
	case peer.IsValid():
		k.about = peer
	case uid != nil:
		k.about = *uid
	}
	return k
}
