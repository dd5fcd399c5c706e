package engine

import (
	"fmt"
	"reflect"

	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// What one client may ask for, whatever is free.
const (
	maxWindows = 64      // of the arena, each way
	maxIDs     = 1 << 16 // messages in the daemon's hands; messages in the client's
	maxDests   = 1 << 17 // destination slots, barrier cells
	maxEntries = 1 << 17 // of the submission and event rings
	MaxBuffers = 4096
	maxSegs    = 1 << 18 // local segments of operations not yet done, of all processes of a user
)

// GrantParams bounds what a process may ask for.
func GrantParams(want shm.Params) (shm.Params, error) {
	p := want
	if p == (shm.Params{}) {
		p = shm.DefaultParams()
	}
	if err := p.Check(); err != nil {
		return p, fmt.Errorf("%w: %w", unix.EINVAL, err)
	}
	for _, f := range []struct {
		name   string
		v, max uint32
	}{{"SubEntries", p.SubEntries, maxEntries}, {"EventEntries", p.EventEntries, maxEntries},
		{"MaxMsgs", p.MaxMsgs, maxIDs}, {"MaxRx", p.MaxRx, maxIDs}, {"Slots", p.Slots, maxDests}, {"Cells", p.Cells, maxDests},
		{"SendWindows", p.SendWindows, maxWindows}, {"RecvWindows", p.RecvWindows, maxWindows}} {
		if f.v > f.max {
			return p, fmt.Errorf("%w: shared memory parameters: %s is %d, this daemon grants up to %d", unix.ENOBUFS, f.name, f.v, f.max)
		}
	}
	return p, nil
}

// RecordBytes is how many bytes the engine's tables and records of a process may come to take:
// all messages, slots and cells that p has room for.
func RecordBytes(p shm.Params) uint64 {
	const entry = 8 // of a table
	size := func(n uint32, of ...reflect.Type) (sum uint64) {
		for _, t := range of {
			sum += uint64(t.Size())
		}
		return sum * uint64(n)
	}
	return entry*(uint64(p.MaxMsgs)+uint64(p.Slots)+uint64(p.Cells)) +
		size(p.MaxMsgs, reflect.TypeFor[txMsg](), reflect.TypeFor[taker](), reflect.TypeFor[[4]*taker]()) + // each may be the one of a socket in a rota
		size(p.MaxRx, reflect.TypeFor[rxEntry](), reflect.TypeFor[uint32]()) +
		size(p.Slots, reflect.TypeFor[slot](), reflect.TypeFor[pin]()) +
		size(p.Cells, reflect.TypeFor[cell]())
}

// BufferSize is what a buffer of n bytes takes: whole pages.
func BufferSize(n uint64) (uint64, error) {
	if n == 0 || n > 1<<40 {
		return 0, fmt.Errorf("%w: a buffer of %d bytes", unix.EINVAL, n)
	}
	return (n + 4096 - 1) &^ (4096 - 1), nil
}
