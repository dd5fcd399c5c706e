package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// restorePause is the pause between two attempts to open a failed leg.
const restorePause = time.Second

// restore tries to open l until that succeeds, and then brings l in sync. It returns when l
// is in sync or has failed again, which starts another restore, or when the mirror ends.
func (r *mirror) restore(l *leg) {
	for r.ctx.Err() == nil && r.v.ctx.Err() == nil {
		t, err := r.reopen(l)
		if err == nil {
			if err = r.resync(t); err != nil && r.ctx.Err() == nil {
				r.fail([]target{t}, fmt.Errorf("while it was restored: %w", err))
			}
			return
		}
		select {
		case <-time.After(restorePause):
		case <-r.ctx.Done():
		case <-r.v.ctx.Done():
		}
	}
}

// reopen opens a session at l, unless l has one.
func (r *mirror) reopen(l *leg) (target, error) {
	r.mu.Lock()
	t := target{l, l.s}
	r.mu.Unlock()
	if t.s != nil {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, attachPatience)
	defer cancel()
	s, err := r.openLeg(ctx, l)
	if err != nil {
		return t, err
	}
	super, err := readSuper(s)
	if err != nil && !errors.Is(err, errNoSuper) {
		s.close(err)
		return t, err
	}
	r.member.Lock()
	defer r.member.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || !r.super.follows(l.i, &super) {
		// Another blockstore is there, or an earlier content.
		l.missed.fill(r.super.regions())
	}
	l.s, l.state = s, legSyncing
	return target{l, s}, nil
}

// resync copies the missed regions to a leg. While it does that, changes of other regions go
// to the leg, too. When no region is missed any more, the leg is in sync.
func (r *mirror) resync(t target) error {
	r.v.log.Info("leg is being restored", "disk", r.v.disk, "leg", t.l.server)
	copied := uint64(0)
	b := make([]byte, min(r.v.block, 1<<minRegion))
	for {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		r.mu.Lock()
		region := t.l.missed.next()
		r.mu.Unlock()
		if region >= 0 {
			if err := r.copyRegion(t, region, b); err != nil {
				return err
			}
			copied += min(1<<r.super.region, r.super.size-uint64(region)<<r.super.region)
			continue
		}
		if err := t.s.ask(store.Message{Kind: store.KindFlush}); err != nil {
			return err
		}
		joined, err := r.rejoin(t)
		if err != nil {
			return err
		}
		if joined {
			r.v.log.Info("leg is in sync", "disk", r.v.disk, "leg", t.l.server, "bytes", copied)
			return nil
		}
	}
}

// copyRegion copies one region. Changes of it wait.
func (r *mirror) copyRegion(t target, region int, b []byte) error {
	r.copying.Lock()
	defer r.copying.Unlock()
	r.gate.shut(region)
	defer r.gate.open()
	at, end := uint64(region)<<r.super.region, min(uint64(region+1)<<r.super.region, r.super.size)
	for at < end {
		n := min(uint64(len(b)), end-at)
		m := store.Message{Kind: store.KindRead, Flags: store.FlagBytes, Block: at, Length: uint32(n)}
		result := make(chan error, 1)
		r.read(m, b, 0, errClosed, func(err error) { result <- err })
		if err := <-result; err != nil {
			return err
		}
		m.Kind = store.KindWrite
		m.Flags |= store.FlagUnsynced
		if err := t.s.moveNow(m, b); err != nil {
			return err
		}
		at += n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.l.missed.remove(region)
	t.l.fresh.add(span{region, region})
	return nil
}

// rejoin makes a leg in sync. It returns false if the leg has missed regions again, or has
// failed.
func (r *mirror) rejoin(t target) (bool, error) {
	r.intent.writing.Lock()
	defer r.intent.writing.Unlock()
	r.intent.mu.Lock()
	bits := r.intent.bits.clone()
	r.intent.mu.Unlock()
	if err := r.writeMap(&t, bits, 0, r.super.regions()-1); err != nil {
		return false, err
	}
	r.member.Lock()
	defer r.member.Unlock()
	r.mu.Lock()
	ready := t.l.s == t.s && t.l.missed.next() < 0
	if ready {
		t.l.state = legInSync
	}
	r.mu.Unlock()
	if ready {
		r.record(false, t.l)
	}
	return ready, nil
}
