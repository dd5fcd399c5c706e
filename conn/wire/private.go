package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	// ProtocolMajor is the version spoken, RDS/IB 3.1, before the point.
	ProtocolMajor = 3
	// ProtocolMinor is what follows the point.
	ProtocolMinor = 1
	// MinorMask is what kernels send: minors 0 and 1 are supported.
	MinorMask = 0x0003
	// ExtVersion is the version of rdsd's extension in the magic.
	ExtVersion = 2
	// ExtPath is in its place in the private data of a connection in another path than 0.
	// Daemons that do not know paths reject it.
	ExtPath = 3

	// PrivateLen4 is the length of the private data between IPv4 addresses.
	PrivateLen4 = 32
	// PrivateLen6 is the length between IPv6 addresses.
	PrivateLen6 = 56

	// RejectIncompat is the reject code for "incompatible, raced or already
	// up".
	RejectIncompat = 1

	magic0, magic1 = 'R', 'd'
)

// Private is the private data of a connection request and its reply (kernel:
// rds_ib_connect_private).
type Private struct {
	Src, Dst     netip.Addr // the sender's own address first
	Major, Minor uint8
	MinorMask    uint16
	TOS          uint8  // lane
	Path         uint8  // 0, unless Ext is ExtPath
	AckSeq       uint64 // highest sequence received and handed up
	Credit       uint32
	// Ext is the version of rdsd's extension the sender speaks, 0 for kernels.
	Ext uint8
}

// AppendPrivate encodes p behind b: 32 bytes if Src is IPv4, else 56.
func AppendPrivate(b []byte, p *Private) []byte {
	be := binary.BigEndian
	if src, dst := p.Src.Unmap(), p.Dst.Unmap(); src.Is4() && dst.Is4() {
		s, d := src.As4(), dst.As4()
		b = append(append(b, s[:]...), d[:]...)
	} else {
		s, d := src.As16(), dst.As16()
		b = append(append(b, s[:]...), d[:]...)
	}
	b = append(b, p.Major, p.Minor)
	b = be.AppendUint16(b, p.MinorMask)
	b = append(b, p.TOS, p.Path, 0, 0)
	b = be.AppendUint64(b, p.AckSeq)
	b = be.AppendUint32(b, p.Credit)
	if p.Ext == 0 {
		return append(b, 0, 0, 0, 0)
	}
	return append(b, magic0, magic1, p.Ext, 0)
}

// ParsePrivate decodes the private data of a connection between IPv6 addresses (v6)
// or IPv4 addresses. It accepts longer data, because connection managers pad it. It
// does not check the version.
func ParsePrivate(b []byte, v6 bool) (p Private, err error) {
	want := PrivateLen4
	if v6 {
		want = PrivateLen6
	}
	if len(b) < want {
		return p, fmt.Errorf("wire: private data of %d bytes, want %d", len(b), want)
	}
	if v6 {
		p.Src = netip.AddrFrom16([16]byte(b[0:16]))
		p.Dst = netip.AddrFrom16([16]byte(b[16:32]))
	} else {
		p.Src = netip.AddrFrom4([4]byte(b[0:4]))
		p.Dst = netip.AddrFrom4([4]byte(b[4:8]))
	}
	be := binary.BigEndian
	b = b[want-24 : want]
	p.Major, p.Minor = b[0], b[1]
	p.MinorMask = be.Uint16(b[2:])
	p.TOS = b[4]
	p.AckSeq = be.Uint64(b[8:])
	p.Credit = be.Uint32(b[16:])
	if b[20] == magic0 && b[21] == magic1 {
		p.Ext = b[22]
	}
	if p.Ext != ExtPath {
		return p, nil
	}
	if p.Path = b[5]; p.Path == 0 || p.Path >= MaxPaths {
		return p, fmt.Errorf("wire: private data of path %d, want 1 to %d", p.Path, MaxPaths-1)
	}
	return p, nil
}

// KernelCompatible reports whether a peer without rdsd's extension speaks a version
// that this side can speak (kernel: rds_ib_protocol_compatible): 3.1, or 4.0 and
// 4.1, which accept 3.1.
func (p *Private) KernelCompatible() bool {
	return p.Major == ProtocolMajor && p.Minor == ProtocolMinor || p.Major == 4 && p.MinorMask&MinorMask != 0
}

// Reject is the private data of a rejection.
type Reject struct {
	Code int32 // kernel: the reason, RejectIncompat whatever it is
	Ext  uint8 // version of rdsd's extension the rejecting side speaks, 0 for kernels
	// Crossed says that the rejecting side has a request of its own on its way, which goes
	// ahead of the one that it rejects. Kernels do not say it.
	Crossed bool
	Why     Why // NotSaid from kernels and from daemons of 0.2.0
}

// Why says why a daemon rejects a request. The numbers are the protocol's.
type Why uint8

// Reasons of a rejection.
const (
	NotSaid      Why = 0
	NotAllowed   Why = 1 // peers.allow of the rejecting side does not name the other one
	WrongAddress Why = 2 // the addresses in the private data are not the connection's
	NoRoom       Why = 3
	TooMany      Why = 4 // requests in a second
	OtherWay     Why = 5 // the rejecting side reaches the other one by another transport
)

// Append encodes r behind b. The code is little-endian: kernels send it in host
// order. A kernel reads the code and ignores the rest. A daemon of 0.2.0 ignores Why.
func (r *Reject) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Code))
	if r.Ext == 0 {
		return b
	}
	var flags uint8
	if r.Crossed {
		flags = rejectCrossed
	}
	return append(b, magic0, magic1, r.Ext, flags, byte(r.Why), 0, 0, 0)
}

// rejectCrossed is the flag for Reject.Crossed.
const rejectCrossed = 1

// ParseReject decodes the private data of a rejection. ok is false if b is too short
// for a code.
func ParseReject(b []byte) (r Reject, ok bool) {
	if len(b) < 4 {
		return r, false
	}
	r.Code = int32(binary.LittleEndian.Uint32(b))
	if len(b) >= 8 && b[4] == magic0 && b[5] == magic1 {
		r.Ext, r.Crossed = b[6], b[7]&rejectCrossed != 0
		if len(b) >= 12 {
			r.Why = Why(b[8])
		}
	}
	return r, true
}

// Rejected returns the private data of every rejection by this daemon but Crossed.
func Rejected(why Why) []byte {
	return (&Reject{Code: RejectIncompat, Ext: ExtVersion, Why: why}).Append(nil)
}

// Crossed returns the private data of a rejection by a daemon whose own request goes ahead.
func Crossed() []byte {
	return (&Reject{Code: RejectIncompat, Ext: ExtVersion, Crossed: true}).Append(nil)
}
