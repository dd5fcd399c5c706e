// Package iwarp encodes and decodes the bytes of iWARP, RDMA over TCP: MPA start-up
// frames (RFC 5044 section 7.1, RFC 6581 section 9), FPDUs (RFC 5044 section 4), DDP
// segment headers (RFC 5041 section 4), RDMAP headers (RFC 5040 section 4) and
// Terminate. It holds no state and does no I/O. Only the parsers of start-up frames
// allocate.
//
// An FPDU is
//
//	u16 ULPDU length | ULPDU | 0-3 bytes of pad | u32 CRC
//
// The ULPDU is a DDP header (14 bytes tagged, 18 untagged), an RDMAP header in a
// Read Request and in a Terminate, and the payload. Markers are sent to a peer that
// asks for them, and never asked for.
//
// Not covered by docs/stability.md: any release may change this package.
package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// RDMAP opcodes (RFC 5040 section 4.1, RFC 7306 section 4).
const (
	OpWrite          = 0
	OpReadRequest    = 1
	OpReadResponse   = 2
	OpSend           = 3
	OpSendInv        = 4
	OpSendSE         = 5
	OpSendSEInv      = 6
	OpTerminate      = 7
	OpImmediate      = 8
	OpImmediateSE    = 9
	OpAtomicRequest  = 10
	OpAtomicResponse = 11
)

// DDP queue numbers (RFC 5040 section 4.1).
const (
	QNSend      = 0
	QNRead      = 1
	QNTerminate = 2
	QNAtomic    = 3 // Atomic Responses (RFC 7306 section 5.3)
)

// Sizes in bytes. Header lengths count from the start of the FPDU.
const (
	LenField      = 2
	TaggedLen     = 16 // length field + tagged DDP header
	UntaggedLen   = 20 // length field + untagged DDP header
	ReadReqLen    = 28 // RDMAP header of a Read Request
	CRCLen        = 4
	MaxULPDU      = 65535 // what the length field can say; accepted
	MaxSendULPDU  = 64768 // what may be sent (RFC 5044: MULPDU's upper end)
	MaxPayload    = 64512 // what this side puts into one FPDU
	ReadReqULPDU  = UntaggedLen - LenField + ReadReqLen
	MaxSendFPDU   = LenField + untaggedULPDU + MaxPayload + 3 + CRCLen
	MaxFPDU       = LenField + MaxULPDU + 3 + CRCLen
	taggedULPDU   = TaggedLen - LenField
	untaggedULPDU = UntaggedLen - LenField
)

const (
	ctlTagged   = 0x80
	ctlLast     = 0x40
	ctlDVMask   = 0x03
	ddpVersion  = 1
	rdmapVer    = 0x40
	rdmapVMask  = 0xc0
	rdmapOpMask = 0x0f
)

// Errors of ParseHeader. Each stands for one Terminate code; see Fault.
var (
	ErrShort        = errors.New("iwarp: ULPDU shorter than its header")
	ErrDDPVersion   = errors.New("iwarp: DDP version is not 1")
	ErrRDMAPVersion = errors.New("iwarp: RDMAP version is not 1")
	ErrOpcode       = errors.New("iwarp: unexpected RDMAP opcode")
)

// Header is the DDP header of one segment with the RDMAP control byte.
type Header struct {
	ULPDU  int // length of the ULPDU: headers and payload
	Tagged bool
	Last   bool
	Op     uint8

	STag uint32 // tagged: the buffer
	TO   uint64 // tagged: offset of the payload in it

	InvSTag uint32 // untagged
	QN      uint32
	MSN     uint32
	MO      uint32
}

// Len returns the length of the header from the start of the FPDU.
func (h *Header) Len() int {
	if h.Tagged {
		return TaggedLen
	}
	return UntaggedLen
}

// Payload returns the number of payload bytes. In a Read Request and a Terminate
// these are the bytes of the RDMAP header.
func (h *Header) Payload() int { return h.ULPDU + LenField - h.Len() }

// Pad returns the number of pad bytes behind a ULPDU of n bytes.
func Pad(n int) int { return -(LenField + n) & 3 }

// FPDUSize returns the size of the FPDU that carries a ULPDU of n bytes.
func FPDUSize(n int) int { return LenField + n + Pad(n) + CRCLen }

// ULPDULen returns the length field at the start of an FPDU.
func ULPDULen(b []byte) int { return int(binary.BigEndian.Uint16(b)) }

// HeaderLen returns how many bytes the DDP header takes, counted from the start of
// the FPDU. ctl is the third byte of the FPDU.
func HeaderLen(ctl byte) int {
	if ctl&ctlTagged != 0 {
		return TaggedLen
	}
	return UntaggedLen
}

// ParseHeader reads the length field and the DDP header at the start of b into h. b
// must hold the header, or the whole FPDU if that is shorter; otherwise the error is
// ErrShort. It checks the length against the header, both versions, and that the
// opcode fits the tagged bit. After an error h has the fields that the header had.
func ParseHeader(b []byte, h *Header) error {
	*h = Header{}
	if len(b) < LenField+2 {
		return ErrShort
	}
	h.ULPDU = ULPDULen(b)
	h.Tagged = b[2]&ctlTagged != 0
	h.Last = b[2]&ctlLast != 0
	h.Op = b[3] & rdmapOpMask
	if h.Payload() < 0 || len(b) < h.Len() {
		return ErrShort
	}
	be := binary.BigEndian
	if h.Tagged {
		h.STag = be.Uint32(b[4:])
		h.TO = be.Uint64(b[8:])
	} else {
		h.InvSTag = be.Uint32(b[4:])
		h.QN = be.Uint32(b[8:])
		h.MSN = be.Uint32(b[12:])
		h.MO = be.Uint32(b[16:])
	}
	switch {
	case b[2]&ctlDVMask != ddpVersion:
		return ErrDDPVersion
	case b[3]&rdmapVMask != rdmapVer:
		return ErrRDMAPVersion
	case h.Tagged != (h.Op == OpWrite || h.Op == OpReadResponse):
		return ErrOpcode
	}
	return nil
}

// PutTagged writes the length field and the header of a tagged segment (Write, Read
// Response) with n bytes of payload to b[:TaggedLen].
func PutTagged(b []byte, op uint8, last bool, n int, stag uint32, to uint64) {
	_ = b[TaggedLen-1]
	be := binary.BigEndian
	be.PutUint16(b, uint16(taggedULPDU+n))
	b[2] = ctlTagged | ddpVersion
	if last {
		b[2] |= ctlLast
	}
	b[3] = rdmapVer | op
	be.PutUint32(b[4:], stag)
	be.PutUint64(b[8:], to)
}

// PutUntagged writes the length field and the header of an untagged segment with n
// bytes of payload to b[:UntaggedLen].
func PutUntagged(b []byte, op uint8, last bool, n int, inv, qn, msn, mo uint32) {
	_ = b[UntaggedLen-1]
	be := binary.BigEndian
	be.PutUint16(b, uint16(untaggedULPDU+n))
	b[2] = ddpVersion
	if last {
		b[2] |= ctlLast
	}
	b[3] = rdmapVer | op
	be.PutUint32(b[4:], inv)
	be.PutUint32(b[8:], qn)
	be.PutUint32(b[12:], msn)
	be.PutUint32(b[16:], mo)
}

// Put writes h to b and returns its length. ParseHeader reads it.
func (h *Header) Put(b []byte) int {
	if h.Tagged {
		PutTagged(b, h.Op, h.Last, h.Payload(), h.STag, h.TO)
	} else {
		PutUntagged(b, h.Op, h.Last, h.Payload(), h.InvSTag, h.QN, h.MSN, h.MO)
	}
	return h.Len()
}

// ReadRequest is the RDMAP header of a Read Request (RFC 5040 section 4.4).
type ReadRequest struct {
	SinkSTag uint32
	SinkTO   uint64
	Size     uint32
	SrcSTag  uint32
	SrcTO    uint64
}

// Put writes r to b[:ReadReqLen].
func (r *ReadRequest) Put(b []byte) {
	_ = b[ReadReqLen-1]
	be := binary.BigEndian
	be.PutUint32(b, r.SinkSTag)
	be.PutUint64(b[4:], r.SinkTO)
	be.PutUint32(b[12:], r.Size)
	be.PutUint32(b[16:], r.SrcSTag)
	be.PutUint64(b[20:], r.SrcTO)
}

// Parse reads r from b[:ReadReqLen].
func (r *ReadRequest) Parse(b []byte) {
	_ = b[ReadReqLen-1]
	be := binary.BigEndian
	r.SinkSTag = be.Uint32(b)
	r.SinkTO = be.Uint64(b[4:])
	r.Size = be.Uint32(b[12:])
	r.SrcSTag = be.Uint32(b[16:])
	r.SrcTO = be.Uint64(b[20:])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC continues crc (0 to begin) over b. It is CRC32C, as in iSCSI.
func CRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// PutCRC writes the CRC field, the only little-endian integer on the wire.
func PutCRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// Seal completes the FPDU in f, which is FPDUSize long and has its length field and
// ULPDU. It zeroes the pad and writes the CRC, or 0 if crc is false.
func Seal(f []byte, crc bool) {
	n := ULPDULen(f)
	end := len(f) - CRCLen
	clear(f[LenField+n : end])
	var c uint32
	if crc {
		c = CRC(0, f[:end])
	}
	PutCRC(f[end:], c)
}

// CheckCRC reports whether the CRC field of the whole FPDU f is right.
func CheckCRC(f []byte) bool {
	end := len(f) - CRCLen
	return binary.LittleEndian.Uint32(f[end:]) == CRC(0, f[:end])
}

// String is for test output and error messages.
func (h *Header) String() string {
	if h.Tagged {
		return fmt.Sprintf("op %d last %t stag %#x to %#x len %d", h.Op, h.Last, h.STag, h.TO, h.Payload())
	}
	return fmt.Sprintf("op %d last %t qn %d msn %d mo %d len %d", h.Op, h.Last, h.QN, h.MSN, h.MO, h.Payload())
}
