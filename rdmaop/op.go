package rdmaop

import (
	"github.com/rdsd/rdsd/abi"
	"golang.org/x/sys/unix"
)

// MaxSegLen is the longest local segment, 2^31 bytes, as in verbs.
const MaxSegLen = 1 << 31

// Seg is a piece of local memory inside a registered region.
type Seg struct {
	LKey uint32
	Addr uint64 // in the region's address space
	Len  uint32 // bytes, 1 to MaxSegLen
}

// AtomicArgs are the operands of an atomic operation. FetchAdd adds CompareAdd; each
// bit set in CompareMask is the top bit of a field that the carry does not leave.
// CmpSwap compares the bits of CompareMask and stores those of SwapMask. The plain
// form of FetchAdd has a CompareMask of 0, that of CmpSwap has masks of all ones:
// see Op.Masked.
type AtomicArgs struct {
	CompareAdd, Swap      uint64
	CompareMask, SwapMask uint64
}

// Op is one operation, from submission to its status. The owner fills in the
// exported fields before EvQueue; they do not change afterwards. Owners keep Ops in
// a pool: Reset makes an Op new and keeps its memory.
type Op struct {
	Kind      abi.OpKind
	Flags     abi.OpFlags
	Cookie    uint64 // remote region: rkey | offset << 32
	RemoteOff uint64 // bytes from the region's start
	Len       uint64 // bytes in all, the sum of Segs
	Segs      []Seg
	Atomic    AtomicArgs
	Token     uint64 // the user's number, returned in the status
	ID        uint64 // barrier id

	state  State
	status abi.Status
	errno  unix.Errno
	key    *key   // counted in flight on this grant, see Grants
	region uint32 // number of the region that it began with, see Grants.Begin
}

// Reset makes o a new operation and keeps the memory of Segs. o must be in StateNew
// or StateSettled, and not in flight in a Grants.
func (o *Op) Reset() {
	segs := o.Segs[:0]
	*o = Op{Segs: segs}
}

// Validate checks that o is well formed for any region.
//
//   - EINVAL: unknown kind; no segment, or more than abi.MaxSegs; a segment that is
//     empty, longer than MaxSegLen or wraps around; Len is not the sum of the
//     segments; an atomic that is not 8 bytes in one segment, or whose remote
//     address is not a multiple of 8.
//   - EFAULT: an atomic whose local address is not a multiple of 8.
//   - ERANGE: the remote range wraps around.
func (o *Op) Validate() unix.Errno {
	if o.Kind < abi.OpWrite || o.Kind > abi.OpCmpSwap || len(o.Segs) == 0 || len(o.Segs) > abi.MaxSegs {
		return unix.EINVAL
	}
	var sum uint64
	for i := range o.Segs {
		s := &o.Segs[i]
		if s.Len == 0 || s.Len > MaxSegLen || s.Addr+uint64(s.Len)-1 < s.Addr {
			return unix.EINVAL
		}
		sum += uint64(s.Len)
	}
	if sum != o.Len {
		return unix.EINVAL
	}
	if o.Kind.Atomic() && (len(o.Segs) != 1 || sum != 8) {
		return unix.EINVAL
	}
	remote, ok := o.remote()
	switch {
	case !ok:
		return unix.ERANGE
	case o.Kind.Atomic() && o.Segs[0].Addr%8 != 0:
		return unix.EFAULT
	case o.Kind.Atomic() && remote%8 != 0:
		return unix.EINVAL
	}
	return 0
}

// Masked reports whether o needs the masked form of its atomic, because the plain
// form would have another result.
func (o *Op) Masked() bool {
	a := &o.Atomic
	switch o.Kind {
	case abi.OpFetchAdd:
		return a.CompareMask != 0
	case abi.OpCmpSwap:
		return ^a.CompareMask|^a.SwapMask != 0
	}
	return false
}

// Begun reports whether the message of o has begun, see Grants.Begin.
func (o *Op) Begun() bool { return o.region != 0 }

// Continue has part, which is a part of o and is posted by itself, be of o's message and not
// of another one, see Grants.Begin. o has begun.
func (o *Op) Continue(part *Op) { part.region = o.region }

// Fenced reports whether the SEND behind o needs a fence. Without one the SEND would
// overtake a READ or an atomic.
func (o *Op) Fenced() bool { return o.Kind == abi.OpRead || o.Kind.Atomic() }

// RKey returns the key of the remote region.
func (o *Op) RKey() uint32 { return uint32(o.Cookie) }

// Rights returns the rights that o needs at the remote region.
func (o *Op) Rights() abi.Rights {
	switch o.Kind {
	case abi.OpWrite:
		return abi.RightWrite
	case abi.OpRead:
		return abi.RightRead
	}
	return abi.RightAtomic
}

// remote returns the remote address of the first byte. It returns false if the range
// wraps around.
func (o *Op) remote() (uint64, bool) {
	start := o.Cookie >> 32
	addr := start + o.RemoteOff
	end := addr + o.Len
	return addr, addr >= start && end >= addr
}

// MakeCookie returns the cookie of a region: its key and the offset of its
// first byte in the key's address space.
func MakeCookie(rkey, offset uint32) uint64 { return uint64(rkey) | uint64(offset)<<32 }

// Apply returns the value that atomic operation o stores at the target if the value
// there is old.
func (o *Op) Apply(old uint64) uint64 {
	a := &o.Atomic
	if o.Kind == abi.OpCmpSwap {
		if (old^a.CompareAdd)&a.CompareMask != 0 {
			return old
		}
		return old&^a.SwapMask | a.Swap&a.SwapMask
	}
	// Without the top bit of each field nothing is carried out of one; that
	// bit is then the sum of its own three without a carry.
	top := a.CompareMask | 1<<63
	return (old&^top + a.CompareAdd&^top) ^ (old^a.CompareAdd)&top
}
