// Package barrier tells which of a socket's RDMA operations have released their
// local buffers, by one number: the high-water mark (HWM).
//
// Every operation of one (socket, destination address) takes the next id, starting
// at 1. An operation is locally complete when nothing can touch its local buffers
// any more, whatever its outcome. The HWM is the largest id N such that the
// operations 1 to N are all locally complete. So it says which buffers are the
// application's again. It says nothing about success.
//
// The package is a pure state machine: no I/O, clock, goroutine or lock.
//
// Not covered by docs/stability.md: any release may change this package.
package barrier

import (
	"errors"
	"fmt"
)

// Errors of Mark's methods, for errors.Is.
var (
	// ErrOrder: the id is not the one after the last id that was issued.
	ErrOrder = errors.New("barrier: id out of order")
	// ErrNotPending: the operation was not issued, or has completed before.
	ErrNotPending = errors.New("barrier: operation is not pending")
)

// Op is an operation's entry in a Mark, a part of its owner's record of the
// operation. The zero value is not pending in any Mark. While it is pending, it must
// not be copied or reused.
type Op struct {
	id         uint64
	mark       *Mark // nil: not pending
	prev, next *Op
}

// Mark is the high-water mark of one (socket, destination address). The zero value
// is ready: no id is issued, and the HWM is 0. Ids are compared by their signed
// 64-bit difference, so they may wrap. A Mark has one owner and is not safe for
// concurrent use.
//
// A Mark is the list of its pending operations in the order of their ids. The HWM is
// one less than the first of them. So every call takes constant time and no memory,
// even if many operations complete ahead of one that stays pending.
type Mark struct {
	last        uint64
	first, tail *Op
	pending     int
}

// Start sets the mark as if all ids up to id had been issued and completed.
// Operations that were pending are not pending any more.
func (m *Mark) Start(id uint64) {
	for o := m.first; o != nil; {
		next := o.next
		*o = Op{}
		o = next
	}
	*m = Mark{last: id}
}

// Check returns ErrOrder unless id is Last()+n+1, the id that may be issued after n
// others.
func (m *Mark) Check(id, n uint64) error {
	if want := m.last + n + 1; id != want {
		return fmt.Errorf("%w: got %d, want %d", ErrOrder, id, want)
	}
	return nil
}

// Issue records that operation o takes id. ErrOrder: id is not Last()+1, or o is
// pending already; the mark is then unchanged.
func (m *Mark) Issue(o *Op, id uint64) error {
	if err := m.Check(id, 0); err != nil {
		return err
	}
	if o.mark != nil {
		return fmt.Errorf("%w: operation %d takes %d", ErrOrder, o.id, id)
	}
	*o = Op{id: id, mark: m, prev: m.tail}
	if m.tail != nil {
		m.tail.next = o
	} else {
		m.first = o
	}
	m.tail, m.last = o, id
	m.pending++
	return nil
}

// Again records that operation o has id and is pending, as it was in the process that this
// one has taken over from. Start has set the last id that was issued there. Operations may
// come in any order; the order of their ids is the fastest. ErrOrder: id is none of those that
// were issued, another operation has it, or o is pending already; the mark is then unchanged.
func (m *Mark) Again(o *Op, id uint64) error {
	before := m.tail
	for before != nil && int64(before.id-id) > 0 {
		before = before.prev
	}
	if int64(m.last-id) < 0 || o.mark != nil || before != nil && before.id == id {
		return fmt.Errorf("%w: operation %d is pending again, %d were issued", ErrOrder, id, m.last)
	}
	*o = Op{id: id, mark: m, prev: before, next: m.first}
	if before != nil {
		o.next, before.next = before.next, o
	} else {
		m.first = o
	}
	if o.next != nil {
		o.next.prev = o
	} else {
		m.tail = o
	}
	m.pending++
	return nil
}

// Complete records that operation o is locally complete. Operations may complete in
// any order. raised reports whether the HWM rose. ErrNotPending: o is not pending in
// m; the mark is then unchanged.
func (m *Mark) Complete(o *Op) (raised bool, err error) {
	if o.mark != m {
		return false, fmt.Errorf("%w: high-water mark %d, last issued %d", ErrNotPending, m.HWM(), m.last)
	}
	raised = o.prev == nil
	if raised {
		m.first = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		m.tail = o.prev
	} else {
		o.next.prev = o.prev
	}
	*o = Op{}
	m.pending--
	return raised, nil
}

// HWM returns the largest id up to which every operation is locally complete.
// It never falls.
func (m *Mark) HWM() uint64 {
	if m.first != nil {
		return m.first.id - 1
	}
	return m.last
}

// Last returns the last id issued.
func (m *Mark) Last() uint64 { return m.last }

// Pending returns how many issued operations are not locally complete.
func (m *Mark) Pending() int { return m.pending }

// AllDone reports whether every issued operation is locally complete.
func (m *Mark) AllDone() bool { return m.first == nil }

// Reached reports whether the HWM has reached id.
func (m *Mark) Reached(id uint64) bool { return Reached(m.HWM(), id) }

// Reached reports whether a high-water mark of hwm has reached id. It compares by
// signed 64-bit difference.
func Reached(hwm, id uint64) bool { return int64(hwm-id) >= 0 }
