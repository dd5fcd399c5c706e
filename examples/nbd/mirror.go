package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// maxLegs bounds the legs of a mirror, which are bits of a superblock.
const maxLegs = 8

// legState says how complete a leg's content is.
type legState int

const (
	legFailed  legState = iota // the leg has no session and may miss changes
	legSyncing                 // the leg has a session; the missed regions are being copied to it
	legInSync                  // the leg has every change that was acknowledged
)

// leg is one blockstore of a mirror. The mirror's mu guards its fields.
type leg struct {
	remote
	i     int
	state legState
	s     *session // nil if the leg has failed

	missed regions // must be copied to the leg
	fresh  regions // with a change in progress, or changed since the last FLUSH began
	old    regions // changed before the FLUSH that is in progress began
}

// mirror is a part with the same content on several legs. A change is acknowledged when
// all legs in sync have it. When a leg fails, the superblocks of the other legs say so before
// any change that the leg has missed is acknowledged. A mirror is safe for concurrent use.
type mirror struct {
	v      *volume
	number int // of the part
	legs   []*leg
	errs   []error // why the legs without a session have none; of open, for load
	gate   *gate
	intent intent

	// member is held for reading while the targets of a change are chosen. It is held for
	// writing while the set of legs in sync changes and the superblocks are written.
	member sync.RWMutex
	super  superblock // guarded by member

	flushing sync.Mutex // one FLUSH at a time
	copying  sync.Mutex // one region at a time

	mu   sync.Mutex // guards the legs, turn and free
	turn int        // the leg that was read from last
	free []*buffer

	ctx  context.Context // ends with the mirror
	stop context.CancelFunc
	wg   sync.WaitGroup // the goroutines that restore legs
}

// target is a leg that a change goes to.
type target struct {
	l *leg
	s *session // the leg's session when the change began
}

// pick returns the next leg in sync that is not in skip. ok is false if there is none.
func (r *mirror) pick(skip uint32) (t target, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.legs {
		r.turn = (r.turn + 1) % len(r.legs)
		if l := r.legs[r.turn]; l.state == legInSync && skip&(1<<l.i) == 0 {
			return target{l, l.s}, true
		}
	}
	return target{}, false
}

// targets returns the legs that a change of sp goes to, and marks sp as missed by the others.
// member is held for reading.
func (r *mirror) targets(sp span) (ts []target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.legs {
		if l.state == legInSync || l.state == legSyncing && !l.missed.meets(sp) {
			l.fresh.add(sp)
			ts = append(ts, target{l, l.s})
		} else {
			l.missed.add(sp)
		}
	}
	return ts
}

// changed notes that a change of sp has ended at ts, so that the next FLUSH covers it.
func (r *mirror) changed(ts []target, sp span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range ts {
		if t.l.s == t.s {
			t.l.fresh.add(sp)
		}
	}
}

func (r *mirror) take() (*buffer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		b := r.free[n-1]
		r.free = r.free[:n-1]
		return b, nil
	}
	return &buffer{b: make([]byte, r.v.block)}, nil
}

func (r *mirror) put(b *buffer) {
	r.mu.Lock()
	r.free = append(r.free, b)
	r.mu.Unlock()
}

// begin does what volume.begin does.
func (r *mirror) begin(buf *buffer, m store.Message, done func(data []byte, err error)) {
	if m.Kind == store.KindWrite {
		b := m.Data
		if buf != nil {
			b = buf.b
		}
		r.write(m, b, func(err error) { done(nil, err) })
		return
	}
	if buf != nil {
		r.read(m, buf.b, 0, errClosed, func(err error) { done(nil, err) })
		return
	}
	p := buffers.Get().(*[]byte)
	r.read(m, *p, 0, errClosed, func(err error) {
		done((*p)[:m.Length], err)
		buffers.Put(p)
	})
}

// read reads from a leg that is not in skip. If there is none, it calls done with last.
func (r *mirror) read(m store.Message, b []byte, skip uint32, last error, done func(error)) {
	t, ok := r.pick(skip)
	if !ok {
		go func() {
			done(r.lost(last))
			r.v.flush()
		}()
		return
	}
	t.s.move(m, b, func(err error) {
		if err == nil {
			done(nil)
			return
		}
		// After an error move calls done in a goroutine of its own, so this may wait.
		var e *ended
		if errors.As(err, &e) {
			r.fail([]target{t}, err)
		}
		r.read(m, b, skip|1<<t.l.i, err, done)
	})
}

// write writes to all targets.
func (r *mirror) write(m store.Message, b []byte, done func(error)) {
	c := r.change(m)
	if len(c.ts) == 0 {
		go func() {
			done(c.end())
			r.v.flush()
		}()
		return
	}
	var mu sync.Mutex
	left, failed := len(c.ts), false
	for i, t := range c.ts {
		t.s.move(m, b, func(err error) {
			mu.Lock()
			c.errs[i] = err
			failed = failed || err != nil
			left--
			last, bad := left == 0, failed
			mu.Unlock()
			switch {
			case last && bad:
				go func() {
					done(c.end())
					r.v.flush()
				}()
			case last:
				done(c.end())
			}
		})
	}
}

// change is a change of some regions that is in progress.
type change struct {
	r    *mirror
	sp   span
	ts   []target
	errs []error // the results of ts
}

// change begins the change m. The change has no targets if the volume is over: without the map
// it could make legs differ of which no map says so.
func (r *mirror) change(m store.Message) *change {
	c := &change{r: r, sp: spanOf(m.Block, uint64(m.Length), r.super.region)}
	r.gate.enter(c.sp)
	if r.intend(c.sp) {
		r.member.RLock()
		c.ts = r.targets(c.sp)
		r.member.RUnlock()
	}
	c.errs = make([]error, len(c.ts))
	return c
}

// end ends the change and returns its result. It waits only if a target has failed.
func (c *change) end() (err error) {
	err = c.r.judge(c.ts, c.errs)
	c.r.changed(c.ts, c.sp)
	c.r.gate.leave(c.sp)
	return err
}

// judge returns the result of a request that ts have ended with errs. It is nil if a leg in
// sync has succeeded. The legs that have not succeeded are then made to fail first.
func (r *mirror) judge(ts []target, errs []error) error {
	good, last := false, fmt.Errorf("no leg has it: %v", errors.Join(errs...))
	clean := true
	r.mu.Lock()
	for i, t := range ts {
		clean = clean && errs[i] == nil
		good = good || errs[i] == nil && t.l.state == legInSync && t.l.s == t.s
	}
	r.mu.Unlock()
	if good && clean {
		return nil
	}
	var bad []target
	for i, t := range ts {
		var e *ended
		over := errors.As(errs[i], &e)
		if errs[i] != nil && (good || over) {
			bad = append(bad, t)
		}
		if errs[i] != nil && !over {
			last = errs[i]
		}
	}
	r.fail(bad, errors.Join(errs...))
	if r.v.ctx.Err() != nil {
		return &ended{context.Cause(r.v.ctx)}
	}
	if good {
		return nil
	}
	return last
}

// ask does what volume.ask does.
func (r *mirror) ask(m store.Message) error {
	if m.Kind == store.KindFlush {
		return r.flush()
	}
	if m.Flags&store.FlagTrim != 0 {
		// All legs must read the same afterwards.
		m.Flags = m.Flags&^store.FlagTrim | store.FlagHole
	}
	c := r.change(m)
	all(c.ts, c.errs, func(s *session) error { return s.ask(m) })
	return c.end()
}

// extents asks a leg in sync: the content of all is the same.
func (r *mirror) extents(m store.Message) ([]store.Extent, error) {
	err := errClosed
	for skip := uint32(0); ; {
		t, ok := r.pick(skip)
		if !ok {
			return nil, r.lost(err)
		}
		var a store.Message
		if a, err = t.s.answer(m); err == nil {
			return a.Extents, nil
		}
		var e *ended
		if errors.As(err, &e) {
			r.fail([]target{t}, err)
		}
		skip |= 1 << t.l.i
	}
}

// lost returns the error of a request that no leg in sync can carry out, the last of which
// has failed with last.
func (r *mirror) lost(last error) error {
	if r.v.ctx.Err() != nil {
		return &ended{context.Cause(r.v.ctx)}
	}
	return last
}

// all calls do for each session of ts concurrently, and puts the results into errs.
func all(ts []target, errs []error, do func(*session) error) {
	var wg sync.WaitGroup
	for i, t := range ts {
		wg.Go(func() { errs[i] = do(t.s) })
	}
	wg.Wait()
}

// flushed returns the legs that a FLUSH goes to, and notes what it covers.
func (r *mirror) flushed() (ts []target) {
	r.member.RLock()
	defer r.member.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.legs {
		if l.s != nil {
			l.old.merge(l.fresh)
			l.fresh = r.gate.busy(r.super.regions()) // this FLUSH need not cover what is in progress
			ts = append(ts, target{l, l.s})
		}
	}
	return ts
}

// flush makes all acknowledged changes durable on all legs that have a session.
func (r *mirror) flush() error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	ts := r.flushed()
	errs := make([]error, len(ts))
	all(ts, errs, func(s *session) error { return s.ask(store.Message{Kind: store.KindFlush}) })
	r.mu.Lock()
	for i, t := range ts {
		if errs[i] == nil && t.l.s == t.s {
			t.l.old = newRegions(r.super.regions())
		}
	}
	r.mu.Unlock()
	return r.judge(ts, errs)
}
