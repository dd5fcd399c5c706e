package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

const (
	// agePause is the pause between two looks for regions that can leave the map. A region
	// stays in it for at least one such pause after its last change.
	agePause = 5 * time.Second
	// group is how many regions come into the map together, so that not each region costs
	// an fsync of its own.
	group = 16
	// pageRegions is how many regions a page of the map has. A page is written at a time.
	pageRegions = 8 * superSize
)

// intent is a mirror's map of the regions in which its legs may differ. Each leg in sync has
// the map on stable storage behind its superblock. A region comes into the map before it is
// changed. It leaves the map when it has not been changed for a while, all legs are in sync,
// and what was changed is on their stable storage. So the map has the regions that differ
// after a crash, and those that a leg has missed which was in sync before.
type intent struct {
	writing sync.Mutex // one write of maps at a time; taken before mirror.member

	mu     sync.Mutex // guards the fields below
	bits   regions    // in the map of all legs in sync
	recent regions    // changed since the last look
	before regions    // changed between the last two looks
}

func (n *intent) reset(count int) {
	n.bits, n.recent, n.before = newRegions(count), newRegions(count), newRegions(count)
}

// use notes a change of sp. It returns false if a region of sp has to come into the map first.
func (n *intent) use(sp span) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recent.add(sp)
	return n.bits.has(sp)
}

// grouped returns the regions that come into the map with sp.
func (r *mirror) grouped(sp span) span {
	return span{sp.first / group * group, min(sp.last/group*group+group, r.super.regions()) - 1}
}

// intend returns true when sp is in the map of all legs in sync, and false if the volume is
// over before. The gate is entered for sp.
func (r *mirror) intend(sp span) bool {
	sp = r.grouped(sp)
	for !r.intent.use(sp) {
		if r.v.ctx.Err() != nil {
			return false
		}
		r.extend(sp)
	}
	return true
}

// extend brings sp into the map.
func (r *mirror) extend(sp span) {
	n := &r.intent
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	bits, there := n.bits.clone(), n.bits.has(sp)
	n.mu.Unlock()
	if there {
		return
	}
	bits.add(sp)
	if r.writeMap(nil, bits, sp.first, sp.last) == nil {
		n.mu.Lock()
		n.bits = bits
		n.mu.Unlock()
	}
}

// ageNow calls age now and then, until the mirror ends.
func (r *mirror) ageNow() {
	tick := time.NewTicker(agePause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.age()
		case <-r.ctx.Done():
			return
		case <-r.v.ctx.Done():
			return
		}
	}
}

// age takes regions out of the map that have not been changed for a while.
func (r *mirror) age() {
	n := &r.intent
	n.writing.Lock()
	defer n.writing.Unlock()
	busy := r.gate.busy(r.super.regions()) // before the legs' sets: a change is in those before it leaves
	r.mu.Lock()
	for _, l := range r.legs {
		if l.state != legInSync {
			r.mu.Unlock()
			return
		}
		busy.merge(l.fresh)
		busy.merge(l.old)
	}
	r.mu.Unlock()
	n.mu.Lock()
	busy.merge(n.recent)
	busy.merge(n.before)
	n.before, n.recent = n.recent, newRegions(r.super.regions())
	left := n.bits.clone()
	left.keep(busy)
	same := left.equal(n.bits)
	n.bits = left // a change from here on brings its regions back
	n.mu.Unlock()
	if !same {
		_ = r.writeMap(nil, left, 0, r.super.regions()-1) // a leg that fails keeps regions too many
	}
}

// emptyMap empties the map if all legs are in sync. No change is in progress any more, and a
// FLUSH has succeeded.
func (r *mirror) emptyMap() {
	r.member.RLock()
	whole := len(r.inSync()) == len(r.legs)
	r.member.RUnlock()
	if whole {
		r.intent.reset(r.super.regions())
		_ = r.writeMap(nil, r.intent.bits, 0, r.super.regions()-1) // a leg that fails keeps regions too many
	}
}

// writeMap writes the pages of the map with the regions first to last to one leg, or to all
// legs in sync if to is nil. Legs where that is not possible have failed when it returns. It
// returns an error if no leg has the map. intent.writing is held, or nobody else uses r yet.
func (r *mirror) writeMap(to *target, bits regions, first, last int) error {
	ts := []target{}
	if to != nil {
		ts = append(ts, *to)
	} else {
		r.member.RLock()
		ts = r.inSync()
		r.member.RUnlock()
	}
	errs := make([]error, len(ts))
	all(ts, errs, func(s *session) error {
		for page := first / pageRegions; page <= last/pageRegions; page++ {
			if err := s.moveNow(mapPage(s, store.KindWrite, page), bits.page(page)); err != nil {
				return err
			}
		}
		return nil
	})
	var bad []target
	for i, t := range ts {
		if errs[i] != nil {
			bad = append(bad, t)
		}
	}
	why := errors.Join(errs...)
	if len(bad) > 0 && to == nil {
		r.fail(bad, fmt.Errorf("map of regions: %w", why))
	}
	if len(bad) == len(ts) {
		return fmt.Errorf("no leg has the map of regions: %w", why)
	}
	return nil
}

// loadMap makes the map of all regions that a leg has in its map which was in sync last.
func (r *mirror) loadMap() error {
	r.intent.reset(r.super.regions())
	b := make([]byte, superSize)
	for i, l := range r.legs {
		if r.super.inSync&(1<<i) == 0 {
			continue
		}
		for page := range (r.super.regions() + pageRegions - 1) / pageRegions {
			if err := l.s.moveNow(mapPage(l.s, store.KindRead, page), b); err != nil {
				return fmt.Errorf("blockstore %v: map of regions: %w", l.server, err)
			}
			r.intent.bits.mergePage(page, b)
		}
	}
	r.intent.bits.trim(r.super.regions())
	return nil
}

// mapPage returns the request for a page of the map.
func mapPage(s *session, kind store.Kind, page int) store.Message {
	return store.Message{Kind: kind, Flags: store.FlagBytes, Block: superAt(s.size) + superSize + uint64(page)*superSize, Length: superSize}
}

// page returns the bytes of a page of the map.
func (r regions) page(page int) []byte {
	b := make([]byte, 0, superSize)
	for i := page * superSize / 8; i < min((page+1)*superSize/8, len(r)); i++ {
		b = binary.LittleEndian.AppendUint64(b, r[i])
	}
	return b[:superSize]
}

// mergePage adds the regions of a page of the map.
func (r regions) mergePage(page int, b []byte) {
	for i := page * superSize / 8; i < min((page+1)*superSize/8, len(r)); i++ {
		r[i] |= binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
}
