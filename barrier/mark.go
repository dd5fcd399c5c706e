// Package barrier keeps operation ids and their high-water mark (HWM).
//
// Every RDMA operation of one (socket, destination address) takes the next id,
// starting at 1. An operation is locally complete when nothing can touch its
// local buffers any more, whatever became of it otherwise. The HWM is the
// largest id N such that 1…N are all locally complete; it says whose buffers
// are the application's again, and nothing about success.
//
// The package is a pure state machine: no I/O, clock, goroutine or lock.
package barrier

import (
	"errors"
	"fmt"
	"math/bits"
)

// Errors of Mark's methods, for errors.Is.
var (
	// ErrOrder: an id was issued that is not the successor of the last one.
	ErrOrder = errors.New("barrier: id out of order")
	// ErrNotIssued: an id was completed that has not been issued.
	ErrNotIssued = errors.New("barrier: id was never issued")
	// ErrDone: an id was completed twice.
	ErrDone = errors.New("barrier: id is already complete")
)

const wordBits = 64

// Mark is the barrier of one (socket, destination address). The zero value is
// ready: nothing issued, HWM 0. Ids compare by their signed 64-bit difference,
// so they may wrap. A Mark has one owner; it is not safe for concurrent use.
//
// In-order completion costs an increment. Ids that complete early are kept in
// a bitmap that grows to the largest distance seen between the HWM and an
// early completion, and is then reused: steady state allocates nothing.
type Mark struct {
	hwm, last uint64
	early     uint64   // bits set in ring
	ring      []uint64 // bit id mod size: id is complete and above hwm+1; len is a power of two
}

// Start makes the mark as if all ids up to id had been issued and completed.
// It drops what was pending.
func (m *Mark) Start(id uint64) {
	clear(m.ring)
	m.hwm, m.last, m.early = id, id, 0
}

// Issue records that an operation took id. ErrOrder unless id is Last()+1; the
// mark is then unchanged.
func (m *Mark) Issue(id uint64) error {
	if id != m.last+1 {
		return fmt.Errorf("%w: got %d, want %d", ErrOrder, id, m.last+1)
	}
	m.last = id
	return nil
}

// Complete records that operation id is locally complete; any order is
// allowed. ErrNotIssued or ErrDone otherwise; the mark is then unchanged.
func (m *Mark) Complete(id uint64) error {
	d := id - m.hwm // 1: the next one the HWM waits for
	switch {
	case int64(d) <= 0:
		return fmt.Errorf("%w: %d, high-water mark %d", ErrDone, id, m.hwm)
	case d > m.last-m.hwm:
		return fmt.Errorf("%w: %d, last issued %d", ErrNotIssued, id, m.last)
	case d == 1:
		m.hwm++
		if m.early > 0 {
			m.absorb()
		}
		return nil
	}
	if d > m.size() {
		m.grow(d)
	}
	w, bit := m.slot(id)
	if *w&bit != 0 {
		return fmt.Errorf("%w: %d, high-water mark %d", ErrDone, id, m.hwm)
	}
	*w |= bit
	m.early++
	return nil
}

// HWM returns the largest id up to which every operation is locally complete.
// It never falls.
func (m *Mark) HWM() uint64 { return m.hwm }

// Last returns the last id issued.
func (m *Mark) Last() uint64 { return m.last }

// Pending returns how many issued operations are not locally complete.
func (m *Mark) Pending() int { return int(m.last - m.hwm - m.early) }

// AllDone reports whether every issued operation is locally complete.
func (m *Mark) AllDone() bool { return m.hwm == m.last }

// Reached reports whether the HWM has reached id.
func (m *Mark) Reached(id uint64) bool { return Reached(m.hwm, id) }

// Reached reports whether a high-water mark of hwm has reached id, by signed
// 64-bit difference.
func Reached(hwm, id uint64) bool { return int64(hwm-id) >= 0 }

func (m *Mark) size() uint64 { return uint64(len(m.ring)) * wordBits }

// slot returns the word and bit of id.
func (m *Mark) slot(id uint64) (*uint64, uint64) {
	return &m.ring[id/wordBits&uint64(len(m.ring)-1)], 1 << (id % wordBits)
}

// absorb moves the HWM over the early completions right above it, a run of
// bits of one word at a time.
func (m *Mark) absorb() {
	for m.early > 0 {
		next := m.hwm + 1
		w, _ := m.slot(next)
		at := next % wordBits
		run := uint64(bits.TrailingZeros64(^(*w >> at)))
		run = min(run, wordBits-at)
		if run == 0 {
			return
		}
		*w &^= (^uint64(0) >> (wordBits - run)) << at
		m.hwm += run
		m.early -= run
	}
}

// grow makes room for an early completion at distance d above the HWM.
func (m *Mark) grow(d uint64) {
	old := *m
	words := uint64(1) << bits.Len64((d-1)/wordBits)
	m.ring = make([]uint64, words)
	for left, id := old.early, old.hwm+2; left > 0; id++ {
		if w, bit := old.slot(id); *w&bit != 0 {
			w, bit := m.slot(id)
			*w |= bit
			left--
		}
	}
}
