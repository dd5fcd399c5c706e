// Package cong keeps the congestion map of one address: a set of those of its 65,536
// ports whose receivers have no room (kernel: cong.c). Peers send their maps to each
// other, so that senders know where to wait.
//
// Not covered by docs/stability.md: any release may change this package.
package cong

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Len is the length of an encoded map in bytes: port p is bit p&7 of byte p>>3.
const Len = 8192

const words = Len / 8

// ErrLen is returned for an encoded map that is not Len bytes long.
var ErrLen = errors.New("cong: congestion map is not 8192 bytes")

// Map is a set of congested ports. The zero value is empty. It takes 8 KiB of memory
// from its first congested port on. A Map belongs to one goroutine.
type Map struct {
	w *[words]uint64 // nil: never anything set
	n int            // ports set
}

// Test reports whether port p is congested.
func (m *Map) Test(p uint16) bool {
	return m.n != 0 && m.w[p>>6]>>(p&63)&1 != 0
}

// Set marks port p congested and reports whether that is a change.
func (m *Map) Set(p uint16) bool {
	if m.Test(p) {
		return false
	}
	if m.w == nil {
		m.w = new([words]uint64)
	}
	m.w[p>>6] |= 1 << (p & 63)
	m.n++
	return true
}

// Clear marks port p free and reports whether that is a change.
func (m *Map) Clear(p uint16) bool {
	if !m.Test(p) {
		return false
	}
	m.w[p>>6] &^= 1 << (p & 63)
	m.n--
	return true
}

// Count returns the number of congested ports.
func (m *Map) Count() int { return m.n }

// Empty reports whether no port is congested.
func (m *Map) Empty() bool { return m.n == 0 }

// Reset marks every port free.
func (m *Map) Reset() {
	if m.n != 0 {
		clear(m.w[:])
		m.n = 0
	}
}

// Load replaces the map by an encoded one. It then calls changed, unless that is
// nil, for every port that differs, in ascending order. ErrLen leaves the map
// unchanged.
func (m *Map) Load(b []byte, changed func(port uint16, congested bool)) error {
	if len(b) != Len {
		return ErrLen
	}
	if m.w == nil {
		if zero(b) {
			return nil
		}
		m.w = new([words]uint64)
	}
	if changed == nil {
		m.load(b)
		return nil
	}
	old := *m.w
	m.load(b)
	for i, w := range old {
		for d := w ^ m.w[i]; d != 0; d &= d - 1 {
			bit := bits.TrailingZeros64(d)
			changed(uint16(i<<6|bit), m.w[i]>>bit&1 != 0)
		}
	}
	return nil
}

func (m *Map) load(b []byte) {
	m.n = 0
	for i := range m.w {
		w := binary.LittleEndian.Uint64(b[i*8:])
		m.w[i] = w
		m.n += bits.OnesCount64(w)
	}
}

// Put encodes the map into the first Len bytes of b.
func (m *Map) Put(b []byte) {
	b = b[:Len]
	if m.n == 0 {
		clear(b)
		return
	}
	for i, w := range m.w {
		binary.LittleEndian.PutUint64(b[i*8:], w)
	}
}

func zero(b []byte) bool {
	for i := 0; i < Len; i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != 0 {
			return false
		}
	}
	return true
}
