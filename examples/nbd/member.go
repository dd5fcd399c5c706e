package main

import (
	"errors"
	"fmt"
	"slices"
)

// fail makes the legs of bad fail, unless they have a new session. When it returns, the
// superblocks of the legs in sync say so, or the volume is over.
func (r *mirror) fail(bad []target, why error) {
	r.member.Lock()
	defer r.member.Unlock()
	r.failLocked(bad, why)
}

// failLocked does what fail does. member is held for writing.
func (r *mirror) failLocked(bad []target, why error) {
	record := false
	for _, t := range bad {
		r.mu.Lock()
		l := t.l
		if l.s != t.s {
			r.mu.Unlock()
			continue
		}
		record = record || l.state == legInSync
		l.s, l.state = nil, legFailed
		l.missed.merge(l.fresh)
		l.missed.merge(l.old)
		l.fresh, l.old = newRegions(r.super.regions()), newRegions(r.super.regions())
		r.mu.Unlock()
		r.v.log.Warn("leg failed", "disk", r.v.disk, "leg", l.server, "err", why)
		t.s.end(why)
		r.wg.Go(func() {
			t.s.close(why)
			r.restore(l)
		})
	}
	if record {
		r.record(false, nil)
	}
}

// inSync returns the legs in sync. member is held.
func (r *mirror) inSync() (ts []target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.legs {
		if l.state == legInSync {
			ts = append(ts, target{l, l.s})
		}
	}
	return ts
}

// record writes the superblocks of the legs in sync. If that fails for a leg, the leg fails,
// and the others are written again. It writes that of joins, if not nil, before the others:
// a leg must have a superblock when those of the others call it in sync. member is held for
// writing.
func (r *mirror) record(clean bool, joins *leg) {
	ts := r.inSync()
	if len(ts) == 0 {
		r.v.end(fmt.Errorf("no leg of the mirror %v is left", r.v.disk))
		return
	}
	r.super.inSync = 0
	for _, t := range ts {
		r.super.inSync |= 1 << t.l.i
	}
	r.super.events++
	r.super.clean = clean
	slices.SortStableFunc(ts, func(a, b target) int {
		switch joins {
		case a.l:
			return -1
		case b.l:
			return 1
		}
		return 0
	})
	var bad []target
	var errs []error
	s := r.super
	for _, t := range ts {
		s.leg = uint8(t.l.i)
		if err := writeSuper(t.s, &s); err != nil {
			bad, errs = append(bad, t), append(errs, err)
			if t.l == joins {
				break
			}
			continue
		}
		// s too: a superblock that calls joins in sync must not take an earlier content of it.
		r.super.last[t.l.i], s.last[t.l.i] = s.events, s.events
	}
	if len(bad) > 0 {
		r.failLocked(bad, errors.Join(errs...))
	}
}
