package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

// mapped answers a MAP.
func (s *server) mapped(r request) {
	m := store.Message{Kind: store.KindMapped, ID: r.ID, Block: r.Block}
	if f := s.export.extents(&r.Message, &m); f != nil {
		s.fail(r, f)
		return
	}
	s.answer(r, &m)
}

// extents adds to the MAPPED a the extents of the range of m, as many as have room.
func (e *export) extents(m, a *store.Message) *store.Failure {
	size, f := e.size()
	switch {
	case f != nil:
		return f
	case m.Offset()+int64(m.Length) > size:
		return store.Failf(store.StatusRange, "%d bytes at offset %d: the export has %d", m.Length, m.Offset(), size)
	}
	for at, end := m.Offset(), m.Offset()+int64(m.Length); at < end && len(a.Extents) < store.MaxMore; {
		next, hole := e.extent(at, end)
		a.Extents = append(a.Extents, store.Extent{Length: uint64(next - at), Hole: hole})
		at = next
	}
	return nil
}

// extent returns where the extent at offset at ends, which is not after end. If the file
// system does not say where holes are, there are none.
func (e *export) extent(at, end int64) (next int64, hole bool) {
	if !e.regular {
		return end, false
	}
	data, err := unix.Seek(e.fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // no data until the end of the file
		return end, true
	case err != nil:
		return end, false
	case data > at:
		return min(data, end), true
	}
	next, err = unix.Seek(e.fd, at, unix.SEEK_HOLE)
	if err != nil || next <= at { // a hole was made in between
		next = end
	}
	return min(next, end), false
}
