package iwarp

import "encoding/binary"

// Sizes of RFC 7306's messages.
const (
	AtomicReqLen   = 52 // RDMAP header of an Atomic Request
	AtomicRespLen  = 12 // of an Atomic Response (by the figure; the text's 32 is wrong)
	ImmediateLen   = 8
	AtomicReqULPDU = untaggedULPDU + AtomicReqLen
)

// Atomic operations of a request.
const (
	AtomicFetchAdd = 0
	AtomicCmpSwap  = 2
)

// AtomicRequest is the RDMAP header of an Atomic Request (RFC 7306 section 5.2).
// Without masks a FetchAdd has a DataMask of 0 (no field ends inside the word), and
// a CmpSwap has both masks all ones.
type AtomicRequest struct {
	Op          uint8
	ID          uint32 // comes back in the response
	STag        uint32
	TO          uint64
	Data        uint64 // to add, or to swap in
	DataMask    uint64
	Compare     uint64
	CompareMask uint64
}

// Put writes r to b[:AtomicReqLen].
func (r *AtomicRequest) Put(b []byte) {
	_ = b[AtomicReqLen-1]
	be := binary.BigEndian
	be.PutUint32(b, uint32(r.Op))
	be.PutUint32(b[4:], r.ID)
	be.PutUint32(b[8:], r.STag)
	be.PutUint64(b[12:], r.TO)
	be.PutUint64(b[20:], r.Data)
	be.PutUint64(b[28:], r.DataMask)
	be.PutUint64(b[36:], r.Compare)
	be.PutUint64(b[44:], r.CompareMask)
}

// Parse reads r from b[:AtomicReqLen].
func (r *AtomicRequest) Parse(b []byte) {
	_ = b[AtomicReqLen-1]
	be := binary.BigEndian
	r.Op = uint8(be.Uint32(b) & 0xf)
	r.ID = be.Uint32(b[4:])
	r.STag = be.Uint32(b[8:])
	r.TO = be.Uint64(b[12:])
	r.Data = be.Uint64(b[20:])
	r.DataMask = be.Uint64(b[28:])
	r.Compare = be.Uint64(b[36:])
	r.CompareMask = be.Uint64(b[44:])
}

// Apply returns the value that the operation stores at the target if the value there
// is old.
func (r *AtomicRequest) Apply(old uint64) uint64 {
	if r.Op == AtomicCmpSwap {
		if (old^r.Compare)&r.CompareMask != 0 {
			return old
		}
		return old&^r.DataMask | r.Data&r.DataMask
	}
	// Mask bits are the tops of fields, out of which nothing is carried: add
	// without them, which cannot carry out of a field, and xor them in.
	return (old&^r.DataMask + r.Data&^r.DataMask) ^ (old^r.Data)&r.DataMask
}

// PutAtomicResponse writes the RDMAP header of an Atomic Response to
// b[:AtomicRespLen].
func PutAtomicResponse(b []byte, id uint32, old uint64) {
	_ = b[AtomicRespLen-1]
	binary.BigEndian.PutUint32(b, id)
	binary.BigEndian.PutUint64(b[4:], old)
}

// ParseAtomicResponse reads the RDMAP header of an Atomic Response.
func ParseAtomicResponse(b []byte) (id uint32, old uint64) {
	_ = b[AtomicRespLen-1]
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
}
