package wire

import "encoding/binary"

// Extension header types. Their data follows the type byte directly; its
// length goes by the type.
const (
	extNone     = 0
	extVersion  = 1
	extRDMA     = 2
	extRDMADest = 3

	// rdsd's. To a kernel they are types without data.
	extAnybody     = 13 // no data, in the last byte, where no other extension header reaches
	extTraceparent = 14 // a Traceparent follows the header; ahead of all others
	extRun         = 15 // how many datagrams a run has
)

// extLen is the data length of each known type (kernel: rds_exthdr_size). The
// kernel takes an unknown type below 16 as empty and stops at any other. In a header of
// rdsd no other extension header is beside extRun.
var extLen = [16]int{1: 4, 2: 4, 3: 8, 4: 8, 5: 2, 6: 4, 7: 4, 8: 1, 9: 5}

// Exts are the extension headers that a message may carry.
type Exts struct {
	RDMA     int       // how many RDMA headers there are, at most 2
	RDMAKeys [2]uint32 // the message follows operations on these rkeys
	HasDest  bool
	Dest     uint64 // RDMA_DEST cookie: rkey | offset<<32
}

// ParseExts reads the extension headers in b. It is as tolerant as the kernel:
// several may be packed, the terminator may be missing if b is full, headers of
// unknown types are skipped as if empty, and a header that would reach beyond b ends
// the list. Of several RDMA headers the first two count, of several RDMA_DEST
// headers the last.
func ParseExts(b []byte) (e Exts) {
	for len(b) > 0 {
		t := int(b[0])
		b = b[1:]
		if t == extNone || t >= len(extLen) || extLen[t] > len(b) {
			return e
		}
		d := b[:extLen[t]]
		b = b[len(d):]
		switch t {
		case extRDMA:
			if e.RDMA < len(e.RDMAKeys) {
				e.RDMAKeys[e.RDMA] = binary.BigEndian.Uint32(d)
				e.RDMA++
			}
		case extRDMADest:
			e.HasDest = true
			e.Dest = uint64(binary.BigEndian.Uint32(d)) | uint64(binary.BigEndian.Uint32(d[4:]))<<32
		}
	}
	return e
}

// Exts decodes the header's extension headers.
func (h *Header) Exts() Exts { return ParseExts(h.Ext[:]) }

// DestCookie returns the RDMA_DEST cookie of the message; 0 if it has none.
func (h *Header) DestCookie() uint64 {
	if h.Ext[0] == extNone {
		return 0
	}
	return h.Exts().Dest
}

// SetExtRDMA makes an RDMA header for rkey the only extension header.
func (h *Header) SetExtRDMA(rkey uint32) {
	h.Ext = [ExtLen]byte{0: extRDMA}
	binary.BigEndian.PutUint32(h.Ext[1:], rkey)
}

// AddExtRDMA adds an RDMA header for rkey behind the one of SetExtRDMA: the message
// follows a second operation.
func (h *Header) AddExtRDMA(rkey uint32) {
	h.Ext[5] = extRDMA
	binary.BigEndian.PutUint32(h.Ext[6:], rkey)
}

// SetExtDest makes an RDMA_DEST header for cookie the only extension header.
func (h *Header) SetExtDest(cookie uint64) {
	h.Ext = [ExtLen]byte{0: extRDMADest}
	binary.BigEndian.PutUint32(h.Ext[1:], uint32(cookie))
	binary.BigEndian.PutUint32(h.Ext[5:], uint32(cookie>>32))
}

// SetExtRun makes a header that says that the message is a run of n datagrams the only
// extension header, and sets FlagRun.
func (h *Header) SetExtRun(n int) {
	h.Flags |= FlagRun
	h.Ext = [ExtLen]byte{0: extRun}
	binary.BigEndian.PutUint32(h.Ext[1:], uint32(n))
}

// SetExtAnybody says that the sender does not want to know which socket accepts the message.
// A peer that does not know the extension header tells it. AddExtTraceparent comes before it.
func (h *Header) SetExtAnybody() { h.Ext[ExtLen-1] = extAnybody }

// Anybody reports whether SetExtAnybody was called.
func (h *Header) Anybody() bool { return h.Ext[ExtLen-1] == extAnybody }

// Run returns how many datagrams the run has that is the message's payload. It returns 0
// if the message is not a run. ok is false if it is one without that number, or with
// another extension header.
func (h *Header) Run() (n int, ok bool) {
	if h.Flags&FlagRun == 0 {
		return 0, true
	}
	n = int(binary.BigEndian.Uint32(h.Ext[1:]))
	return n, h.Ext[0] == extRun && n > 0 && h.Ext[5] == extNone
}
