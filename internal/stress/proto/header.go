package proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// HeaderSize is the size in bytes of the header, and of the shortest message.
const HeaderSize = 63

// Op is the kind of a message.
type Op uint8

// The kinds of messages.
const (
	Request Op = 1
	Ack     Op = 2
)

func (o Op) String() string {
	switch o {
	case Request:
		return "request"
	case Ack:
		return "ack"
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// RDMAOp is the operation that a request asks for and its ack carries out.
type RDMAOp uint8

// The operations, as the side sees them that sends the ack. It reads from the requester's memory
// or writes to it.
const (
	NoRDMA RDMAOp = 0
	Read   RDMAOp = 1
	Write  RDMAOp = 2
)

func (o RDMAOp) String() string {
	switch o {
	case NoRDMA:
		return "no RDMA"
	case Read:
		return "RDMA read"
	case Write:
		return "RDMA write"
	}
	return fmt.Sprintf("RDMA op %d", uint8(o))
}

// Toggle returns Read for Write and Write for Read.
func (o RDMAOp) Toggle() RDMAOp { return 3 - o }

// Header is the header of every message.
type Header struct {
	Seq      uint32 // counts the messages of a flow, requests and acks together
	From, To netip.AddrPort
	Index    uint16 // of the request, in its flow's pipeline
	Op       Op

	RDMA     RDMAOp
	Addr     uint64 // address of the buffer, which only the requester uses
	PhysAddr uint64 // offset in the region
	Pattern  uint64 // the 8 bytes that the buffer is filled with
	Key      uint64 // cookie of the region
	Size     uint32 // bytes of one piece
	Vector   uint32 // number of pieces

	Retry uint8 // the message is sent again (async)
	// AllPieces says that every piece of the operation has the pattern. rds-stress fills only
	// the first piece. It sends this octet as 0 and never reads it.
	AllPieces bool
}

// ErrHeader means that a message is not rds-stress's.
var ErrHeader = errors.New("not a message of rds-stress")

// Put writes h to the first HeaderSize bytes of b. Both addresses must be IPv4.
func (h *Header) Put(b []byte) {
	be := binary.BigEndian
	_ = b[:HeaderSize]
	from, to := h.From.Addr().As4(), h.To.Addr().As4()
	be.PutUint32(b, h.Seq)
	copy(b[4:], from[:])
	copy(b[8:], to[:])
	be.PutUint16(b[12:], h.From.Port())
	be.PutUint16(b[14:], h.To.Port())
	be.PutUint16(b[16:], h.Index)
	b[18], b[19] = byte(h.Op), byte(h.RDMA)
	be.PutUint64(b[20:], h.Addr)
	be.PutUint64(b[28:], h.PhysAddr)
	be.PutUint64(b[36:], h.Pattern)
	be.PutUint64(b[44:], h.Key)
	be.PutUint32(b[52:], h.Size)
	be.PutUint32(b[56:], h.Vector)
	b[60], b[61], b[62] = h.Retry, 0, octet(h.AllPieces)
}

// Parse reads the header of the message b. It ignores octet 61, which only the sender uses.
// Errors: ErrHeader.
func Parse(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes, its header alone has %d", ErrHeader, len(b), HeaderSize)
	}
	be := binary.BigEndian
	h := Header{
		Seq:   be.Uint32(b),
		From:  netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), be.Uint16(b[12:])),
		To:    netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[8:12])), be.Uint16(b[14:])),
		Index: be.Uint16(b[16:]), Op: Op(b[18]), RDMA: RDMAOp(b[19]),
		Addr: be.Uint64(b[20:]), PhysAddr: be.Uint64(b[28:]), Pattern: be.Uint64(b[36:]), Key: be.Uint64(b[44:]),
		Size: be.Uint32(b[52:]), Vector: be.Uint32(b[56:]), Retry: b[60], AllPieces: b[62] == 1,
	}
	if h.Op != Request && h.Op != Ack {
		return h, fmt.Errorf("%w: %v", ErrHeader, h.Op)
	}
	if h.RDMA > Write {
		return h, fmt.Errorf("%w: %v", ErrHeader, h.RDMA)
	}
	return h, nil
}
