package wire

import (
	"encoding/binary"
	"math/bits"
)

// RDS/TCP carries the same header in a byte stream. TCP has checksums and
// acknowledges, so h_csum and h_ack are 0 and ACK_REQUIRED is not sent, and
// none of them counts when received (kernel: tcp_send.c, tcp_recv.c).

const (
	csumOff  = 30 // h_csum
	extPaths = 5  // NPATHS {be16}
	extGen   = 6  // GEN_NUM {be32}
	extSPort = 8  // SPORT_IDX {0}
)

// PutTCP encodes h for RDS/TCP into the first HeaderLen bytes of b. It panics
// if b is shorter.
func (h *Header) PutTCP(b []byte) {
	x := *h
	x.Ack, x.Credit = 0, 0
	x.Flags &^= FlagAckRequired
	x.Put(b)
	b[csumOff], b[csumOff+1] = 0, 0
}

// ParseTCP decodes the header at the start of b into h, as RDS/TCP means it: without
// incarnations. Error: ErrShort.
func ParseTCP(b []byte, h *Header) error {
	if len(b) < HeaderLen {
		return ErrShort
	}
	var x [HeaderLen]byte
	copy(x[:], b)
	x[csumOff], x[csumOff+1] = 0, 0
	if err := Parse(x[:], h); err != nil {
		return err
	}
	h.Ack, h.Credit, h.SrcInc, h.DstInc = 0, 0, 0, 0
	h.Flags &^= FlagAckRequired
	return nil
}

// MaxPaths is how many TCP connections two hosts may have in a lane (kernel:
// RDS_MPATH_WORKERS).
const MaxPaths = 8

// Handshake is what a probe, or its answer, says about its sender in extension
// headers.
type Handshake struct {
	Paths   uint16 // NPATHS: how many connections it offers; 0 if it does not say, which means one
	Gen     uint32 // GEN_NUM: changes with each start of its host; 0 if it does not say
	BySPort bool   // SPORT_IDX: the source port of a connection tells its number
}

// SetHandshake makes x the only extension headers. It leaves out Gen: a kernel that
// got it would start its sequence numbers again in the middle of a connection.
func (h *Header) SetHandshake(x Handshake) {
	h.SetExtPaths(x.Paths)
	if x.BySPort {
		h.Ext[3] = extSPort // its data, which old kernels take for the end, is 0
	}
}

// Handshake decodes the extension headers of a probe or its answer.
func (h *Header) Handshake() (x Handshake) {
	for b := h.Ext[:]; len(b) > 0; {
		t := int(b[0])
		b = b[1:]
		if t == extNone || t >= len(extLen) || extLen[t] > len(b) {
			break
		}
		switch t {
		case extPaths:
			x.Paths = binary.BigEndian.Uint16(b)
		case extGen:
			x.Gen = binary.BigEndian.Uint32(b)
		case extSPort:
			x.BySPort = true
		}
		b = b[extLen[t]:]
	}
	return x
}

// SetExtPaths makes an NPATHS header the only extension header.
func (h *Header) SetExtPaths(n uint16) {
	h.Ext = [ExtLen]byte{0: extPaths}
	binary.BigEndian.PutUint16(h.Ext[1:], n)
}

// Paths returns how many connections the sender of a handshake offers; 1 without an
// NPATHS header. A number that is 0, above MaxPaths or no power of two is lowered to
// one that a hash can be masked with.
func (h *Header) Paths() int {
	n := min(int(h.Handshake().Paths), MaxPaths)
	return 1 << max(bits.Len(uint(n))-1, 0)
}

// ProbePort is the port a handshake is sent from.
const ProbePort = 1

// IsProbe reports whether h asks for the handshake: it is a ping from ProbePort.
func (h *Header) IsProbe() bool { return h.SPort == ProbePort && h.DPort == 0 }

// IsProbeAnswer reports whether h answers a probe.
func (h *Header) IsProbeAnswer() bool { return h.SPort == 0 && h.DPort == ProbePort }

// Answer makes h the answer to ping: an empty pong to its source. If ping is a
// probe, the answer says how many connections this side offers.
func (h *Header) Answer(ping *Header, seq uint64) {
	*h = Header{Seq: seq, DPort: ping.SPort}
	if ping.IsProbe() {
		h.SetExtPaths(MaxPaths)
	}
}
