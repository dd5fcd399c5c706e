package daemon

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
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

// encode writes a copy of a journal, but for the number of its last event.
func (j *journal) encode(w *handover.Writer) {
	w.Begin(tagJournal)
	first := j.first()
	if mutant.On(mutant.HandoverJournal) {
		first = j.seq + 1
	}
	w.Count(int(j.seq + 1 - first))
	for s := first; s <= j.seq; s++ {
		encodeEvent(w, &j.ring[s%maxEvents])
	}
	var all []*ctl.ErrorInfo
	for _, e := range j.errors {
		all = append(all, e)
	}
	slices.SortFunc(all, byKey) // so that the same journal has the same bytes
	w.Count(len(all))
	for _, e := range all {
		encodeError(w, e)
	}
	w.End()
}

func encodeEvent(w *handover.Writer, i *ctl.EventInfo) {
	w.I64(i.Time.UnixNano())
	w.String(i.Level)
	w.String(i.Event)
	w.Addr(i.Local)
	w.Addr(i.Peer)
	encodeUID(w, i.UID)
	w.Int(i.PID)
	w.String(i.Error)
}

func encodeError(w *handover.Writer, e *ctl.ErrorInfo) {
	w.String(e.Event)
	w.String(e.Level)
	w.Addr(e.Peer)
	encodeUID(w, e.UID)
	w.U64(e.Count)
	w.I64(e.First.UnixNano())
	w.I64(e.Last.UnixNano())
	w.String(e.Error)
}

// adopt reads what encode wrote. The journal follows another one, and nothing has been noted yet.
func (j *journal) adopt(r *handover.Reader) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.Begin(tagJournal)
	last := j.seq
	n := r.Count(mostEvents, leastEventBytes)
	if uint64(n) > last || last > math.MaxUint64/2 {
		r.Fail("%d events, the last one is number %d", n, last)
		return
	}
	j.ring = make([]ctl.EventInfo, maxEvents)
	j.before = last - uint64(n)
	for s := j.before + 1; s <= last && r.Err() == nil; s++ {
		i := ctl.EventInfo{Seq: s, Time: adoptTime(r), Level: r.String(maxLevelText), Event: r.String(maxEventText), Local: r.Addr(), Peer: r.Addr(),
			UID: adoptUID(r), PID: r.Int(math.MaxInt32), Error: r.String(mostErrText)}
		j.ring[s%maxEvents] = i
	}
	j.errors = map[errorKey]*ctl.ErrorInfo{}
	for range r.Count(mostErrors, leastErrorBytes) {
		e := &ctl.ErrorInfo{Event: r.String(maxEventText), Level: r.String(maxLevelText), Peer: r.Addr(), UID: adoptUID(r),
			Count: r.U64(), First: adoptTime(r), Last: adoptTime(r), Error: r.String(mostErrText)}
		k := keyOf(e.Event, e.Peer, e.UID)
		if j.errors[k] != nil || e.Count == 0 || e.Count > last {
			r.Fail("error %q is there twice, or %d times in %d events", e.Event, e.Count, last)
		}
		if r.Err() != nil {
			break
		}
		j.errors[k] = e
	}
	r.End()
	if r.Err() != nil {
		j.before, j.ring, j.errors = last, nil, nil
	}
}

func encodeUID(w *handover.Writer, uid *uint32) {
	w.Bool(uid != nil)
	if uid != nil {
		w.U32(*uid)
	}
}

func adoptUID(r *handover.Reader) *uint32 {
	if !r.Bool() {
		return nil
	}
	uid := r.U32()
	return &uid
}

func adoptTime(r *handover.Reader) time.Time { return time.Unix(0, r.I64()).UTC() }

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
