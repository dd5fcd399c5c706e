package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// assemblePatience limits how long opening a leg may take.
const assemblePatience = 5 * time.Second

// assemble attaches the volume's legs. All legs that the newest superblock calls in sync must
// be there. Otherwise a missing one could have changes that the others have missed.
func (v *volume) assemble(ctx context.Context) error {
	r := &mirror{v: v, gate: newGate()}
	for i, at := range v.remotes {
		r.legs = append(r.legs, &leg{remote: at, i: i})
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	errs := r.openAll(ctx)
	err := r.choose(errs)
	if err == nil {
		r.member.Lock()
		r.record(false)
		r.member.Unlock()
		if v.ctx.Err() != nil {
			err = context.Cause(v.ctx)
		}
	}
	if err != nil {
		r.stop()
		r.wg.Wait()
		for _, l := range r.legs {
			if l.s != nil {
				l.s.close(err)
			}
		}
		return err
	}
	v.mirror, v.size = r, r.super.size
	for _, l := range r.legs {
		if l.state != legInSync {
			r.wg.Go(func() { r.restore(l) })
		}
	}
	return nil
}

// openAll opens a session at each leg, and returns the errors.
func (r *mirror) openAll(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, assemblePatience)
	defer cancel()
	errs := make([]error, len(r.legs))
	var wg sync.WaitGroup
	for i, l := range r.legs {
		wg.Go(func() { l.s, errs[i] = r.open(ctx, l) })
	}
	wg.Wait()
	for _, l := range r.legs {
		if l.s == nil {
			continue
		}
		if r.v.block == 0 {
			r.v.block, r.v.small = l.s.Block, l.s.Small
		}
		r.v.block, r.v.small = min(r.v.block, l.s.Block), min(r.v.small, l.s.Small)
	}
	return errs
}

// open begins a session at l.
func (r *mirror) open(ctx context.Context, l *leg) (*session, error) {
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
	return s, nil
}

// choose decides which legs are in sync, by their superblocks. errs are the errors of the
// legs that have no session.
func (r *mirror) choose(errs []error) error {
	if r.v.anew {
		return r.chooseAnew(errs)
	}
	supers := make([]*superblock, len(r.legs))
	var best *superblock
	source := -1
	for i, l := range r.legs {
		if l.s == nil {
			continue
		}
		b := make([]byte, superSize)
		err := l.s.moveNow(store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: superAt(l.s.size), Length: superSize}, b)
		if err != nil {
			return fmt.Errorf("superblock of %v: %w", l.server, err)
		}
		s, err := parseSuper(b)
		if err != nil {
			continue // a leg that is new
		}
		if int(s.leg) != i || int(s.legs) != len(r.legs) || superAt(l.s.size) < s.size {
			return fmt.Errorf("%v is leg %d of %d of its mirror, and %d bytes long: name the same legs in the same order", l.server, s.leg+1, s.legs, s.size)
		}
		if supers[i] = &s; best == nil || s.events > best.events {
			best, source = &s, i
		}
	}
	if best == nil {
		return fmt.Errorf("%v: no leg has a superblock (-anew makes the mirror): %w", r.v.disk, errors.Join(errs...))
	}
	for i, l := range r.legs {
		switch s := supers[i]; {
		case s != nil && s.id != best.id:
			return fmt.Errorf("%v belongs to another mirror than %v", l.server, r.legs[source].server)
		case s == nil && best.inSync&(1<<i) != 0:
			return fmt.Errorf("leg %v of %v has to be there, the others may have missed changes: %w",
				l.server, r.v.disk, errors.Join(errs[i], errNoSuper))
		}
	}
	r.super = *best
	for i, l := range r.legs {
		s := supers[i]
		same := s != nil && s.events == best.events && best.inSync&(1<<i) != 0
		// After a crash, some legs may have changes that were not acknowledged.
		l.begin(r.regions(), i == source || same && best.clean)
	}
	return nil
}

// chooseAnew makes the mirror from the content of the first leg.
func (r *mirror) chooseAnew(errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.super = superblock{legs: uint8(len(r.legs)), size: superAt(r.legs[0].s.size)}
	for _, l := range r.legs {
		r.super.size = min(r.super.size, superAt(l.s.size))
	}
	if _, err := rand.Read(r.super.id[:]); err != nil {
		return err
	}
	for i, l := range r.legs {
		l.begin(r.regions(), i == 0)
	}
	return nil
}

// begin sets the state of a leg when its mirror is attached. n is the number of regions.
func (l *leg) begin(n int, inSync bool) {
	l.missed, l.fresh, l.old = newRegions(n), newRegions(n), newRegions(n)
	switch {
	case inSync:
		l.state = legInSync
		return
	case l.s != nil:
		l.state = legSyncing
	}
	l.missed.add(span{0, n - 1})
}

// close ends the mirror. If the volume is not over, the superblocks then say that all legs in
// sync are equal.
func (r *mirror) close() {
	r.stop()
	r.wg.Wait()
	if r.v.ctx.Err() == nil && r.flush() == nil {
		r.member.Lock()
		r.record(true)
		r.member.Unlock()
	}
	for _, l := range r.legs {
		if l.s != nil {
			l.s.close(errClosed)
		}
	}
	r.wg.Wait()
}
