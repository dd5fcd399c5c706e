package rds

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// atomicSize is the size of the memory an atomic operation works on, bytes.
const atomicSize = 8

// Atomic is an operation on 8 aligned bytes of remote memory that a message carries.
// The bytes are a number in the target host's byte order. The value before the
// operation is stored in local memory.
//
// It is atomic towards all atomic operations that go through the target's daemon,
// those of its own host included, and towards the 64-bit atomic instructions of the
// target's processors (package sync/atomic).
//
// Between two rdsd it runs once if its message is accepted, and not at all otherwise,
// whatever happens to the connection. It waits for a host that is away like a datagram.
//
// Source: IBA 1.7 section 9.4.5, RFC 7306 section 5; the masked forms
// IBV_EXP_WR_EXT_MASKED_ATOMIC_*, net/rds/rdma.c rds_cmsg_atomic.
type Atomic struct {
	// CmpSwap: compare and swap. Otherwise it is a fetch-and-add.
	CmpSwap   bool
	Cookie    Cookie  // the remote region, with AllowAtomic
	RemoteOff uint64  // offset in the region, bytes; the region's start and the offset are multiples of 8
	Local     Segment // 8 bytes at a multiple of 8, for the old value; Socket.Atomic needs none

	Add     uint64 // fetch-and-add: what to add
	NoCarry uint64 // fetch-and-add: each bit set is the top bit of a field that the carry does not leave

	Compare, Swap uint64 // compare-and-swap: if the value is Compare, it becomes Swap
	// Masked makes a compare-and-swap compare only the bits of CompareMask and store only those
	// of SwapMask.
	Masked                bool
	CompareMask, SwapMask uint64

	Token  uint64 // comes back in the Completion
	Notify bool   // queue a Completion when settled
	Report bool   // queue a Completion if it is not a success
	Silent bool   // do not deliver the message to the remote socket: see RDMA.Silent
}

// checkAtomic checks what the client can check of an atomic operation. mu is held.
func (t *tx) checkAtomic(a *Atomic) error {
	switch {
	case a.Cookie == 0:
		return invalid("atomic without a remote cookie")
	case !a.CmpSwap && a.Masked:
		return invalid("Masked is of a compare-and-swap; the mask of a fetch-and-add is NoCarry")
	case !a.Masked && a.CompareMask|a.SwapMask != 0:
		return invalid("masks of an atomic that is not Masked")
	}
	if err := t.checkSegment(&a.Local, 1); err != nil {
		return err
	}
	if a.Local.Len != atomicSize || a.Local.Off%atomicSize != 0 {
		return errUnaligned
	}
	return nil
}

// kind is what a does, as the daemon reads it.
func (a *Atomic) kind() abi.OpKind {
	if a.CmpSwap {
		return abi.OpCmpSwap
	}
	return abi.OpFetchAdd
}

// operands returns the operands of a as the daemon reads them.
func (a *Atomic) operands() shm.AtomicEntry {
	switch {
	case !a.CmpSwap:
		return shm.AtomicEntry{CompareAdd: a.Add, CompareMask: a.NoCarry}
	case a.Masked:
		return shm.AtomicEntry{CompareAdd: a.Compare, Swap: a.Swap, CompareMask: a.CompareMask, SwapMask: a.SwapMask}
	}
	return shm.AtomicEntry{CompareAdd: a.Compare, Swap: a.Swap, CompareMask: ^uint64(0), SwapMask: ^uint64(0)}
}
