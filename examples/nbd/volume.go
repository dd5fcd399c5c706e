package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// flags returns NBD's transmission flags for the export.
func (v *volume) flags() uint16 {
	if v.readOnly {
		return hasFlags | hasMulti | hasReadOnly
	}
	f := hasFlags | hasMulti | hasFlush | hasFUA | hasTrim | hasZeroes
	if !slices.ContainsFunc(v.parts, func(p part) bool { _, ok := p.(*mirror); return ok }) {
		f |= hasFastZero // one leg of a mirror might be fast, and another one not
	}
	return f
}

// whole reports whether the n bytes at off are in one part.
func (v *volume) whole(off, n uint64) bool {
	_, _, left := v.place(off)
	return n <= left
}

// begin carries out the READ or WRITE m, whose bytes are in one part, and calls done once.
// The bytes of a WRITE are in m.Data, and those of a READ are passed to done and valid only
// while done runs. After success a receiving goroutine mostly calls done, so done must not
// wait. begin may wait.
func (v *volume) begin(m store.Message, done func(data []byte, err error)) {
	i, at, _ := v.place(m.Block)
	m.Block = at
	v.parts[i].begin(nil, m, done)
}

// ask carries out m, which has no data, at all parts that it concerns.
func (v *volume) ask(m store.Message) error {
	if len(v.parts) == 1 {
		return v.parts[0].ask(m)
	}
	errs := make([]error, len(v.parts))
	var wg sync.WaitGroup
	for i, p := range v.parts {
		mine := m
		if m.Kind == store.KindZero {
			mine.Block = v.before(i, m.Block)
			mine.Length = uint32(v.before(i, m.Block+uint64(m.Length)) - mine.Block)
			if mine.Length == 0 {
				continue
			}
		}
		wg.Go(func() { errs[i] = p.ask(mine) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// extents returns where the storage of n bytes at off has holes. The extents may end before
// the n bytes.
func (v *volume) extents(off, n uint64) ([]store.Extent, error) {
	of := make([][]store.Extent, len(v.parts))
	errs := make([]error, len(v.parts))
	var wg sync.WaitGroup
	for i, p := range v.parts {
		from := v.before(i, off)
		m := store.Message{Kind: store.KindMap, Block: from, Length: uint32(v.before(i, off+n) - from)}
		if m.Length > 0 {
			wg.Go(func() { of[i], errs[i] = p.extents(m) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return v.merge(off, n, of), nil
}

// merge returns the extents of n bytes at off of a volume, as far as those of its parts are
// known. It uses up the extents of the parts.
func (g geometry) merge(off, n uint64, of [][]store.Extent) (all []store.Extent) {
	for end := off + n; off < end; {
		i, _, left := g.place(off)
		if len(of[i]) == 0 {
			break
		}
		e := &of[i][0]
		k := min(left, e.Length, end-off)
		if last := len(all) - 1; last >= 0 && all[last].Hole == e.Hole {
			all[last].Length += k
		} else if len(all) == store.MaxMore {
			break
		} else {
			all = append(all, store.Extent{Length: k, Hole: e.Hole})
		}
		off += k
		if e.Length -= k; e.Length == 0 {
			of[i] = of[i][1:]
		}
	}
	return all
}

// over ends the volume.
func (v *volume) over(why error) error {
	v.end(why)
	return &ended{context.Cause(v.ctx)}
}

// touch notes that c has replies to send, for the next flush.
func (v *volume) touch(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.dirty, c) {
		v.dirty = append(v.dirty, c)
	}
}

// flush sends the replies of all connections that have some.
func (v *volume) flush() {
	v.mu.Lock()
	dirty := v.dirty
	v.dirty = nil
	v.mu.Unlock()
	for _, c := range dirty {
		c.out.flush()
	}
}
