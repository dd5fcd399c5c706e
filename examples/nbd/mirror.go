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

var errClosed = errors.New("closed")

// legState is what is known of a leg's content.
type legState int

const (
	legFailed  legState = iota // it misses something and is not reached
	legSyncing                 // it is given what it misses
	legInSync                  // it has everything that was acknowledged
)

// leg is one blockstore of a mirror. Mirror.mu guards its fields.
type leg struct {
	remote
	i     int
	state legState
	s     *session // nil: failed

	missed regions // what has to be copied to it
	fresh  regions // what is being changed, or was since the last FLUSH
	old    regions // what was changed before the FLUSH that is in progress
}

// mirror is a volume with the same content on several legs. A change is acknowledged
// when all legs have it that count as in sync. A leg that fails does not count any more
// as soon as the superblocks of the others say so, and before any change that it
// missed is acknowledged. Safe for concurrent use.
type mirror struct {
	v    *volume
	legs []*leg
	gate *gate

	// member is held for reading while it is decided which legs a change goes to, and
	// for writing while that changes, until the superblocks say so.
	member sync.RWMutex
	super  superblock // guarded by member

	flushing sync.Mutex // one FLUSH at a time
	copying  sync.Mutex // one region at a time

	mu   sync.Mutex // guards the legs and turn
	turn int        // whose turn it is to be read from

	ctx  context.Context // ends with the mirror
	stop context.CancelFunc
	wg   sync.WaitGroup // what restores legs
}

// target is a leg that a change goes to.
type target struct {
	l *leg
	s *session // when the change began
}

// pick returns a leg to read from, but none of skip; ok is false if there is none.
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

// targets returns the legs that a change of sp goes to, and notes what the others
// miss. member is held for reading.
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

// begin is volume.begin.
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

// read reads from any leg but those of skip; if there is none, done gets last.
func (r *mirror) read(m store.Message, b []byte, skip uint32, last error, done func(error)) {
	t, ok := r.pick(skip)
	if !ok {
		go func() {
			if r.v.ctx.Err() != nil {
				last = &ended{context.Cause(r.v.ctx)}
			}
			done(last)
			r.v.flush()
		}()
		return
	}
	t.s.move(m, b, func(err error) {
		if err == nil {
			done(nil)
			return
		}
		// A goroutine of its own runs this.
		var e *ended
		if errors.As(err, &e) {
			r.fail([]target{t}, err)
		}
		r.read(m, b, skip|1<<t.l.i, err, done)
	})
}

// write writes to all legs that count.
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

// change is one change of some regions while it is carried out.
type change struct {
	r    *mirror
	sp   span
	ts   []target
	errs []error // of ts
}

// change begins the change m.
func (r *mirror) change(m store.Message) *change {
	c := &change{r: r, sp: spanOf(m.Block, uint64(m.Length))}
	r.gate.enter(c.sp)
	r.member.RLock()
	c.ts = r.targets(c.sp)
	r.member.RUnlock()
	c.errs = make([]error, len(c.ts))
	return c
}

// end ends the change: legs that do not have it fail, if another one has it. It waits
// only after an error.
func (c *change) end() (err error) {
	err = c.r.judge(c.ts, c.errs)
	c.r.changed(c.ts, c.sp)
	c.r.gate.leave(c.sp)
	return err
}

// judge returns what became of something that ts were asked for, with errs: nil if a
// leg in sync did it, and those that did not have failed.
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

// ask is volume.ask.
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

// all calls do for the sessions of ts at the same time and waits for all.
func all(ts []target, errs []error, do func(*session) error) {
	var wg sync.WaitGroup
	for i, t := range ts {
		wg.Go(func() { errs[i] = do(t.s) })
	}
	wg.Wait()
}

// flush makes everything that was acknowledged durable on all legs that count.
func (r *mirror) flush() error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.member.RLock()
	r.mu.Lock()
	var ts []target
	for _, l := range r.legs {
		if l.s != nil {
			l.old.merge(l.fresh)
			l.fresh = newRegions(r.regions())
			ts = append(ts, target{l, l.s})
		}
	}
	r.mu.Unlock()
	r.member.RUnlock()
	errs := make([]error, len(ts))
	all(ts, errs, func(s *session) error { return s.ask(store.Message{Kind: store.KindFlush}) })
	r.mu.Lock()
	for i, t := range ts {
		if errs[i] == nil && t.l.s == t.s {
			t.l.old = newRegions(r.regions())
		}
	}
	r.mu.Unlock()
	return r.judge(ts, errs)
}

// regions is how many the volume has.
func (r *mirror) regions() int { return int((r.super.size + regionSize - 1) / regionSize) }

// fail makes the legs of bad not count any more, unless they have a new session. When
// it returns, the superblocks of the others say so, or the volume is over.
func (r *mirror) fail(bad []target, why error) {
	r.member.Lock()
	defer r.member.Unlock()
	r.failLocked(bad, why)
}

// failLocked is fail with member held for writing.
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
		l.fresh, l.old = newRegions(r.regions()), newRegions(r.regions())
		r.mu.Unlock()
		r.v.log.Warn("leg failed", "disk", r.v.disk, "leg", l.server, "err", why)
		t.s.end(why)
		r.wg.Go(func() {
			t.s.close(why)
			r.restore(l)
		})
	}
	if record {
		r.record(false)
	}
}

// record writes the superblocks. A leg that cannot be written does not count any more,
// and the others are written again. member is held for writing.
func (r *mirror) record(clean bool) {
	r.mu.Lock()
	r.super.inSync = 0
	var ts []target
	for _, l := range r.legs {
		if l.state == legInSync {
			r.super.inSync |= 1 << l.i
			ts = append(ts, target{l, l.s})
		}
	}
	r.mu.Unlock()
	if len(ts) == 0 {
		r.v.end(fmt.Errorf("no leg of the mirror %v is left", r.v.disk))
		return
	}
	r.super.events++
	r.super.clean = clean
	errs := make([]error, len(ts))
	var wg sync.WaitGroup
	for i, t := range ts {
		wg.Go(func() {
			s := r.super
			s.leg = uint8(t.l.i)
			m := store.Message{Kind: store.KindWrite, Flags: store.FlagBytes, Block: superAt(t.s.size), Length: superSize}
			errs[i] = t.s.moveNow(m, s.append(nil))
		})
	}
	wg.Wait()
	var bad []target
	for i, t := range ts {
		if errs[i] != nil {
			bad = append(bad, t)
		}
	}
	if len(bad) > 0 {
		r.failLocked(bad, errors.Join(errs...))
	}
}
