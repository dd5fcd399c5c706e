package wire

import (
	"encoding/binary"
	"fmt"
)

// AtomicLen is the length in bytes of the request of an atomic, which follows the
// header of a frame with FlagAtomic.
const AtomicLen = 56

// AtomicKind says what an atomic does.
type AtomicKind uint8

const (
	AtomicFetchAdd AtomicKind = 1
	AtomicCmpSwap  AtomicKind = 2
)

// Atomic is the request of an atomic operation that a message carries. The receiver
// carries it out when it accepts the message, and answers with a Result.
type Atomic struct {
	RKey   uint32
	Region uint32 // number of the region, as its GRANT named it
	Addr   uint64 // of the 8 bytes, in the region's address space
	Kind   AtomicKind
	// As in rdmaop.AtomicArgs. The plain forms have a CompareMask of 0 (fetch and add) and
	// masks of all ones (compare and swap).
	CompareAdd, Swap      uint64
	CompareMask, SwapMask uint64
}

// Put encodes a into the first AtomicLen bytes of b.
func (a *Atomic) Put(b []byte) {
	_ = b[AtomicLen-1]
	be := binary.BigEndian
	be.PutUint32(b[0:], a.RKey)
	be.PutUint32(b[4:], a.Region)
	be.PutUint64(b[8:], a.Addr)
	be.PutUint64(b[16:], uint64(a.Kind)<<56)
	be.PutUint64(b[24:], a.CompareAdd)
	be.PutUint64(b[32:], a.Swap)
	be.PutUint64(b[40:], a.CompareMask)
	be.PutUint64(b[48:], a.SwapMask)
}

// ParseAtomic decodes the request at the start of b into a. An unknown kind is an
// error.
func ParseAtomic(b []byte, a *Atomic) error {
	if len(b) < AtomicLen {
		return fmt.Errorf("wire: atomic request of %d bytes, want %d", len(b), AtomicLen)
	}
	be := binary.BigEndian
	a.RKey, a.Region = be.Uint32(b[0:]), be.Uint32(b[4:])
	a.Addr = be.Uint64(b[8:])
	a.Kind = AtomicKind(b[16])
	a.CompareAdd, a.Swap = be.Uint64(b[24:]), be.Uint64(b[32:])
	a.CompareMask, a.SwapMask = be.Uint64(b[40:]), be.Uint64(b[48:])
	if a.Kind != AtomicFetchAdd && a.Kind != AtomicCmpSwap {
		return fmt.Errorf("wire: atomic of kind %d", a.Kind)
	}
	return nil
}

// AtomicStatus says what became of an atomic.
type AtomicStatus uint32

const (
	AtomicDone   AtomicStatus = 0 // it ran, and its message was accepted
	AtomicAccess AtomicStatus = 1 // the key, the bounds or the rights are wrong
	AtomicAlign  AtomicStatus = 2 // the address is not a multiple of 8
	AtomicNobody AtomicStatus = 3 // not on the wire: there is no socket for the message, and no memory
)

// Result answers a message that carried an atomic (ATOMIC_RESULT). With another Status
// than AtomicDone the atomic did not run, and the message was not delivered.
type Result struct {
	Notice // of the message
	Status AtomicStatus
	Old    uint64 // value of the word before the atomic
}

// Append encodes r behind dst.
func (r *Result) Append(dst []byte) []byte {
	dst = r.Notice.Append(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Status))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint64(dst, r.Old)
}

// ParseResult decodes an ATOMIC_RESULT body.
func ParseResult(body []byte) (r Result, err error) {
	if len(body) < ResultLen {
		return r, shortBody(TypeResult, body, ResultLen)
	}
	if r.Notice, err = ParseNotice(body); err != nil {
		return r, err
	}
	r.Status = AtomicStatus(binary.BigEndian.Uint32(body[NoticeLen:]))
	r.Old = binary.BigEndian.Uint64(body[NoticeLen+8:])
	if r.Status > AtomicAlign {
		return r, fmt.Errorf("wire: ATOMIC_RESULT of status %d", r.Status)
	}
	return r, nil
}
