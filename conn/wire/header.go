// Package wire encodes and decodes what two ends of a connection send each other:
// message headers, extension headers, internal messages and the private data of the
// connection manager. The formats are those of RDS/IB 3.1, with rdsd's extension,
// and of RDS/TCP. docs/protocol.md has the layouts.
//
// The package keeps no state and allocates nothing. Integers are big-endian unless a
// comment says otherwise.
//
// Not covered by docs/stability.md: any release may change this package.
package wire

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

const (
	// HeaderLen is the length of a message header in bytes.
	HeaderLen = 48
	// CongLen is the payload length of a congestion frame in bytes.
	CongLen = 8192
	// MinMaxSend is the smallest "largest SEND" a side may announce: a
	// congestion frame goes in one piece.
	MinMaxSend = HeaderLen + CongLen
	// ExtLen is how many bytes of extension headers a header holds when its
	// last four bytes are the destination's incarnation.
	ExtLen = 12
)

// Flags of a header (h_flags).
type Flags uint8

const (
	FlagCong          Flags = 0x01 // congestion bitmap, always alone
	FlagAckRequired   Flags = 0x02 // the receiver acks at once
	FlagRetransmitted Flags = 0x04 // sent before; a duplicate if old
	FlagRun           Flags = 0x08 // the payload is a run: see package frames
	FlagSilent        Flags = 0x10 // carries an operation, is not delivered
	FlagResume        Flags = 0x20 // first message to the port after REFUSED
	FlagInternal      Flags = 0x40 // DPort is an InternalType
	FlagAtomic        Flags = 0x80 // an Atomic follows the header
)

// ErrShort is returned for fewer than HeaderLen bytes, ErrChecksum for a header
// whose checksum is neither right nor zero.
var (
	ErrShort    = errors.New("wire: frame shorter than its header")
	ErrChecksum = errors.New("wire: header checksum is wrong")
)

// Header is a decoded message header (kernel: struct rds_header).
type Header struct {
	Seq    uint64 // 0 in ack, congestion and HELLO frames
	Ack    uint64 // every sequence up to this one has been received
	Len    uint32 // payload bytes of the whole message
	SPort  uint16
	DPort  uint16
	SrcInc uint32 // incarnation of the source socket (kernels: padding, 0)
	DstInc uint32 // incarnation meant, 0 = any (kernels: last bytes of Ext)
	Flags  Flags
	// Between the two bytes, for next to each other they would be read as one
	// 16-bit word, which waits for all stores before those of the bytes.
	_      uint8
	Credit uint8        // receive buffers granted with this frame
	Ext    [ExtLen]byte // extension headers, still encoded
}

// Put encodes h with its checksum into the first HeaderLen bytes of b. A checksum of
// zero is sent as 0xffff, which means the same, because zero says that there is no
// checksum. Put panics if b is shorter.
func (h *Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	be := binary.BigEndian
	w3 := uint64(h.Flags)<<56 | uint64(h.Credit)<<48 | uint64(h.SrcInc)<<16
	w2 := uint64(h.Len)<<32 | uint64(h.SPort)<<16 | uint64(h.DPort)
	w4 := be.Uint64(h.Ext[:8])
	w5 := uint64(be.Uint32(h.Ext[8:]))<<32 | uint64(h.DstInc)
	sum := ^fold(sum6(h.Seq, h.Ack, w2, w3, w4, w5))
	if sum == 0 {
		sum = 0xffff
	}
	be.PutUint64(b[0:], h.Seq)
	be.PutUint64(b[8:], h.Ack)
	be.PutUint64(b[16:], w2)
	be.PutUint64(b[24:], w3|uint64(sum))
	be.PutUint64(b[32:], w4)
	be.PutUint64(b[40:], w5)
}

// Parse decodes the header at the start of b into h. Errors: ErrShort,
// ErrChecksum; h is then undefined.
func Parse(b []byte, h *Header) error {
	if len(b) < HeaderLen {
		return ErrShort
	}
	be := binary.BigEndian
	w0, w1, w2 := be.Uint64(b[0:]), be.Uint64(b[8:]), be.Uint64(b[16:])
	w3, w4, w5 := be.Uint64(b[24:]), be.Uint64(b[32:]), be.Uint64(b[40:])
	if uint16(w3) != 0 && fold(sum6(w0, w1, w2, w3, w4, w5)) != 0xffff {
		return ErrChecksum
	}
	h.Seq, h.Ack = w0, w1
	h.Len, h.SPort, h.DPort = uint32(w2>>32), uint16(w2>>16), uint16(w2)
	h.Flags, h.Credit, h.SrcInc = Flags(w3>>56), uint8(w3>>48), uint32(w3>>16)
	be.PutUint64(h.Ext[:8], w4)
	be.PutUint32(h.Ext[8:], uint32(w5>>32))
	h.DstInc = uint32(w5)
	return nil
}

// FromKernel changes a header that a kernel sent to what a host is given: no
// incarnations, only the flags of kernels, and those of its 16 bytes of extension
// headers that count.
func (h *Header) FromKernel() {
	h.Flags &= FlagAckRequired | FlagRetransmitted
	h.SrcInc = 0
	if h.Ext[0] == extNone {
		h.DstInc = 0
		return
	}
	var all [ExtLen + 4]byte
	copy(all[:], h.Ext[:])
	binary.BigEndian.PutUint32(all[ExtLen:], h.DstInc)
	h.DstInc = 0
	x := ParseExts(all[:])
	h.Ext = [ExtLen]byte{}
	switch {
	case x.HasDest: // with RDMA, which no kernel sends beside it, there is no room
		h.SetExtDest(x.Dest)
	case x.RDMA > 0:
		h.SetExtRDMA(x.RDMAKeys[0])
		if x.RDMA > 1 {
			h.AddExtRDMA(x.RDMAKeys[1])
		}
	}
}

// IsHello reports whether b begins with the header of a HELLO.
func IsHello(b []byte) bool {
	return len(b) >= HeaderLen && Flags(b[24]) == FlagInternal && binary.BigEndian.Uint16(b[22:]) == uint16(TypeHello)
}

// IsAck reports whether a frame of n bytes with this header carries only an ack and
// credits.
func (h *Header) IsAck(n int) bool {
	return n == HeaderLen && h.Seq == 0 && h.SPort == 0 && h.DPort == 0 && h.Flags == 0 && h.Len == 0
}

// Pad rounds n up to a multiple of 8. Messages in one SEND start at such offsets.
func Pad(n int) int { return (n + 7) &^ 7 }

// sum6 adds six words in ones' complement: RFC 1071 allows any word size.
func sum6(a, b, c, d, e, f uint64) uint64 {
	s, k := bits.Add64(a, b, 0)
	s, k = bits.Add64(s, c, k)
	s, k = bits.Add64(s, d, k)
	s, k = bits.Add64(s, e, k)
	s, k = bits.Add64(s, f, k)
	s, k = bits.Add64(s, 0, k)
	return s + k
}

// fold reduces a ones' complement sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}
