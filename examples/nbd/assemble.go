package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

func newMirror(v *volume, number int, at []remote) *mirror {
	r := &mirror{v: v, number: number, gate: newGate()}
	for i, at := range at {
		r.legs = append(r.legs, &leg{remote: at, i: i})
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// open begins a session at each leg. Those of load may be missing.
func (r *mirror) open(ctx context.Context) error {
	r.errs = make([]error, len(r.legs))
	var wg sync.WaitGroup
	for i, l := range r.legs {
		wg.Go(func() { l.s, r.errs[i] = r.openLeg(ctx, l) })
	}
	wg.Wait()
	if len(r.sessions()) == 0 || r.v.anew {
		return errors.Join(r.errs...)
	}
	return nil
}

func (r *mirror) sessions() (all []*session) {
	for _, l := range r.legs {
		if l.s != nil {
			all = append(all, l.s)
		}
	}
	return all
}

// openLeg begins a session at l.
func (r *mirror) openLeg(ctx context.Context, l *leg) (*session, error) {
	s, err := openSession(ctx, r.v.diskOptions, l.bind, l.server, true, r.v.flush)
	if err != nil {
		return nil, err
	}
	switch {
	case s.readOnly:
		err = fmt.Errorf("blockstore %v: is read-only, and cannot be a leg of a mirror", l.server)
	case superAt(s.size) == 0 || superAt(s.size) < r.super.size:
		err = fmt.Errorf("blockstore %v: %d bytes are too few for a leg of the mirror", l.server, s.size)
	case s.Block < r.v.block:
		err = fmt.Errorf("blockstore %v: its largest block has %d bytes, the mirror needs %d", l.server, s.Block, r.v.block)
	}
	if err != nil {
		s.close(err)
		return nil, err
	}
	if r.v.block > 0 {
		s.Block = r.v.block
	}
	return s, nil
}

// load decides by the superblocks which legs are in sync. All legs that the newest superblock
// calls in sync must be there. Otherwise a missing one could have changes that the others have
// missed.
func (r *mirror) load() (superblock, error) {
	supers := make([]*superblock, len(r.legs))
	var best *superblock
	for i, l := range r.legs {
		if l.s == nil {
			continue
		}
		s, err := readSuper(l.s)
		switch {
		case errors.Is(err, errNoSuper):
			r.errs[i] = err
			continue // a leg that is new
		case err != nil:
			return s, fmt.Errorf("blockstore %v: %w", l.server, err)
		case int(s.leg) != i || int(s.legs) != len(r.legs) || superAt(l.s.size) < s.size:
			return s, fmt.Errorf("%v is leg %d of %d of its mirror, and %d bytes long: name the same legs in the same order", l.server, s.leg+1, s.legs, s.size)
		}
		if supers[i] = &s; best == nil || s.events > best.events {
			best = &s
		}
	}
	if best == nil {
		return superblock{}, fmt.Errorf("no leg has one: %w", errors.Join(r.errs...))
	}
	source := r.legs[best.leg]
	for i, l := range r.legs {
		switch s := supers[i]; {
		case s != nil && (s.id != best.id || s.part != best.part):
			return *best, fmt.Errorf("%v belongs to another mirror than %v", l.server, source.server)
		case s == nil && best.inSync&(1<<i) != 0:
			return *best, fmt.Errorf("leg %v of %v has to be there, the others may have missed changes: %v", l.server, r.v.disk, r.errs[i])
		}
	}
	r.super = *best
	if err := r.loadMap(); err != nil {
		return *best, err
	}
	for i, l := range r.legs {
		s := supers[i]
		same := s != nil && s.events == best.events && best.inSync&(1<<i) != 0
		// After a crash, some legs may have changes that were not acknowledged.
		switch l.begin(r.super.regions(), l == source || same && best.clean); {
		case l.state == legInSync:
		case s == nil && l.s == nil && best.last[i] != 0, best.follows(i, s):
			l.missed.merge(r.intent.bits) // reopen looks at the superblock of a leg that is not there now
		default:
			l.missed.fill(r.super.regions())
		}
	}
	return *best, nil
}

// create makes the mirror from the content of the first leg.
func (r *mirror) create(s superblock) error {
	s.legs, s.inSync = uint8(len(r.legs)), 1
	r.super = s
	n := s.regions()
	r.intent.reset(n)
	for i, l := range r.legs {
		l.begin(n, i == 0)
		if i == 0 {
			continue
		}
		l.missed.fill(n)
		// What the leg says of an earlier mirror must not count if this one is not
		// complete yet when it is attached again.
		if err := writeSuper(l.s, nil); err != nil {
			return fmt.Errorf("blockstore %v: %w", l.server, err)
		}
	}
	return nil
}

// begin sets the state of a leg when its mirror is attached. n is the number of regions.
func (l *leg) begin(n int, inSync bool) {
	l.missed, l.fresh, l.old = newRegions(n), newRegions(n), newRegions(n)
	switch {
	case inSync:
		l.state = legInSync
	case l.s != nil:
		l.state = legSyncing
	}
}

// start says on the legs in sync that the mirror is in use, and begins to restore the others.
func (r *mirror) start() error {
	var others []*leg // those that fail from here on are restored anyway
	for _, l := range r.legs {
		if l.state != legInSync {
			others = append(others, l)
		}
	}
	if err := r.writeMap(nil, r.intent.bits, 0, r.super.regions()-1); err != nil {
		return err
	}
	r.member.Lock()
	r.record(false, nil)
	r.member.Unlock()
	if r.v.ctx.Err() != nil {
		return context.Cause(r.v.ctx)
	}
	for _, l := range others {
		r.wg.Go(func() { r.restore(l) })
	}
	r.wg.Go(r.ageNow)
	return nil
}

// close ends the mirror. If the volume is not over, the superblocks then say that all legs in
// sync are equal, and the map is empty if these are all legs.
func (r *mirror) close() {
	r.stop()
	r.wg.Wait()
	if r.v.ctx.Err() == nil && r.flush() == nil {
		r.emptyMap()
		r.member.Lock()
		r.record(true, nil)
		r.member.Unlock()
	}
	for _, l := range r.legs {
		if l.s != nil {
			l.s.close(errClosed)
		}
	}
	r.wg.Wait()
}
