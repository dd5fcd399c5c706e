package rds

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// AtomicKind is what an atomic operation does.
type AtomicKind uint8

// Atomic operations.
const (
	FetchAdd AtomicKind = AtomicKind(abi.OpFetchAdd)
	CmpSwap  AtomicKind = AtomicKind(abi.OpCmpSwap)
)

func (k AtomicKind) String() string {
	switch k {
	case FetchAdd:
		return "fetch-and-add"
	case CmpSwap:
		return "compare-and-swap"
	}
	return "atomic?"
}

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
	Kind      AtomicKind
	Cookie    Cookie  // the remote region, with AllowAtomic
	RemoteOff uint64  // offset in the region; the region's start and the offset are multiples of 8
	Local     Segment // 8 bytes at a multiple of 8, for the old value

	Add     uint64 // FetchAdd: what to add
	NoCarry uint64 // FetchAdd: each bit set is the top bit of a field that the carry does not leave

	Compare, Swap uint64 // CmpSwap: if the value is Compare, it becomes Swap
	// Masked makes CmpSwap compare only the bits of CompareMask and store only those
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
	case a.Kind != FetchAdd && a.Kind != CmpSwap:
		return invalid("atomic kind %d is neither FetchAdd nor CmpSwap", a.Kind)
	case a.Cookie == 0:
		return invalid("atomic without a remote cookie")
	case a.Kind == FetchAdd && a.Masked:
		return invalid("Masked is of CmpSwap; the mask of FetchAdd is NoCarry")
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

// operands returns the operands of a as the daemon reads them.
func (a *Atomic) operands() shm.AtomicEntry {
	switch {
	case a.Kind == FetchAdd:
		return shm.AtomicEntry{CompareAdd: a.Add, CompareMask: a.NoCarry}
	case a.Masked:
		return shm.AtomicEntry{CompareAdd: a.Compare, Swap: a.Swap, CompareMask: a.CompareMask, SwapMask: a.SwapMask}
	}
	return shm.AtomicEntry{CompareAdd: a.Compare, Swap: a.Swap, CompareMask: ^uint64(0), SwapMask: ^uint64(0)}
}
