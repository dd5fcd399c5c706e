package iwarp

import (
	"encoding/binary"
	"fmt"
)

// Layers of a Terminate (RFC 5040 section 4.8).
const (
	LayerRDMAP = 0
	LayerDDP   = 1
	LayerLLP   = 2
)

// Error types per layer.
const (
	TypeCatastrophic = 0 // RDMAP, DDP: local catastrophic error
	TypeProtection   = 1 // RDMAP: remote protection
	TypeOperation    = 2 // RDMAP: remote operation
	TypeTagged       = 1 // DDP: tagged buffer
	TypeUntagged     = 2 // DDP: untagged buffer
	TypeMPA          = 0 // LLP: MPA (RFC 5044 section 8)
)

// Code is the layer, type and error code of a Terminate in one comparable value:
// 0x0LTCC.
type Code uint16

// MakeCode makes a Code of its parts.
func MakeCode(layer, typ, code uint8) Code {
	return Code(layer&0xf)<<12 | Code(typ&0xf)<<8 | Code(code)
}

// Layer returns the layer that found the error: 0 RDMAP, 1 DDP, 2 MPA.
func (c Code) Layer() uint8 { return uint8(c >> 12) }

// Type returns the type of the error within its layer.
func (c Code) Type() uint8 { return uint8(c>>8) & 0xf }

// Err returns the error code within its type.
func (c Code) Err() uint8 { return uint8(c) }

// The codes in use.
const (
	TermLocal Code = 0x0000 // RDMAP local catastrophic

	TermReadSTag   Code = 0x0100 // remote protection: invalid STag
	TermReadBounds Code = 0x0101
	TermAccess     Code = 0x0102 // access rights
	TermReadAssoc  Code = 0x0103 // STag not associated with the stream
	TermReadWrap   Code = 0x0104
	TermCantInv    Code = 0x0109
	TermProtection Code = 0x01ff // unspecified

	TermRDMAPVersion Code = 0x0205
	TermOpcode       Code = 0x0206
	TermStream       Code = 0x0207 // catastrophic, localized to the stream
	TermGlobal       Code = 0x0208
	TermInvalidate   Code = 0x0209
	TermOperation    Code = 0x02ff // unspecified

	TermDDPLocal Code = 0x1000

	TermTaggedSTag    Code = 0x1100
	TermTaggedBounds  Code = 0x1101
	TermTaggedAssoc   Code = 0x1102
	TermTaggedWrap    Code = 0x1103
	TermTaggedVersion Code = 0x1104

	TermQN              Code = 0x1201
	TermNoBuffer        Code = 0x1202
	TermMSN             Code = 0x1203
	TermMO              Code = 0x1204
	TermTooLong         Code = 0x1205
	TermUntaggedVersion Code = 0x1206

	TermTCPLost  Code = 0x2001
	TermCRC      Code = 0x2002
	TermFraming  Code = 0x2003 // marker and length mismatch; bad length
	TermMPALocal Code = 0x2005
	TermIRD      Code = 0x2006
	TermNoRTR    Code = 0x2007
)

var codeNames = map[Code]string{
	TermLocal: "local catastrophic error", TermReadSTag: "invalid STag in Read Request",
	TermReadBounds: "Read Request out of bounds", TermAccess: "access rights violation",
	TermReadAssoc: "STag of Read Request not associated with the stream", TermReadWrap: "TO wrap in Read Request",
	TermCantInv: "STag cannot be invalidated", TermProtection: "remote protection error",
	TermRDMAPVersion: "invalid RDMAP version", TermOpcode: "unexpected opcode",
	TermStream: "catastrophic error of this stream", TermGlobal: "catastrophic error",
	TermInvalidate: "STag cannot be invalidated", TermOperation: "remote operation error",
	TermDDPLocal: "DDP local catastrophic error", TermTaggedSTag: "invalid STag",
	TermTaggedBounds: "base or bounds violation", TermTaggedAssoc: "STag not associated with the stream",
	TermTaggedWrap: "TO wrap", TermTaggedVersion: "invalid DDP version",
	TermQN: "invalid queue number", TermNoBuffer: "no receive buffer for the message",
	TermMSN: "MSN out of range", TermMO: "invalid MO", TermTooLong: "message too long for its receive buffer",
	TermUntaggedVersion: "invalid DDP version", TermTCPLost: "TCP connection lost", TermCRC: "CRC error",
	TermFraming: "FPDU length mismatch", TermMPALocal: "local catastrophic MPA error",
	TermIRD: "insufficient IRD", TermNoRTR: "no matching RTR",
}

// Error returns the code as a text.
func (c Code) Error() string {
	n, ok := codeNames[c]
	if !ok {
		n = "unknown error"
	}
	return fmt.Sprintf("%s (Terminate %d/%d/%02x)", n, c.Layer(), c.Type(), c.Err())
}

const (
	termM = 0x80 // DDP segment length valid
	termD = 0x40 // DDP header included
	termR = 0x20 // RDMAP header included
)

// Terminate is the body of a Terminate message.
type Terminate struct {
	Code   Code
	HasDDP bool                         // DDP header of the offending segment follows
	SegLen uint16                       // its ULPDU length
	Raw    [UntaggedLen - LenField]byte // that header as it was received
	DDP    Header                       // the same, parsed
	HasReq bool                         // Read Request header follows
	Req    ReadRequest
	SIW    bool // decoded from the swapped layout of Linux siw
}

// MaxTerminate is the largest Terminate body.
const MaxTerminate = 4 + 2 + untaggedULPDU + ReadReqLen

// Len is the length of the body.
func (t *Terminate) Len() int {
	n := 4
	if t.HasDDP {
		n += 2 + t.DDP.Len() - LenField
	}
	if t.HasReq {
		n += ReadReqLen
	}
	return n
}

// Quote makes t quote the DDP header at the start of the FPDU in f, and the
// Read Request header behind it if f is a whole Read Request. A frame too
// short for its header is not quoted.
func (t *Terminate) Quote(f []byte) {
	if len(f) <= LenField {
		return
	}
	n := HeaderLen(f[LenField])
	if len(f) < n || ULPDULen(f)+LenField < n {
		return
	}
	t.HasDDP = true
	t.SegLen = uint16(ULPDULen(f))
	copy(t.Raw[:], f[LenField:n])
	_ = ParseHeader(f, &t.DDP) // what is wrong with it is what Code says
	if !t.DDP.Tagged && t.DDP.Op == OpReadRequest && len(f) >= n+ReadReqLen && t.DDP.ULPDU == ReadReqULPDU {
		t.HasReq = true
		t.Req.Parse(f[n:])
	}
}

// Put writes the body to b and returns its length.
func (t *Terminate) Put(b []byte) int {
	b[0] = t.Code.Layer()<<4 | t.Code.Type()
	b[1] = t.Code.Err()
	b[2], b[3] = 0, 0
	n := 4
	if t.HasDDP {
		b[2] = termM | termD
		binary.BigEndian.PutUint16(b[n:], t.SegLen)
		n += 2 + copy(b[n+2:], t.Raw[:t.DDP.Len()-LenField])
	}
	if t.HasReq {
		b[2] |= termR
		t.Req.Put(b[n:])
		n += ReadReqLen
	}
	return n
}

// ParseTerminate decodes a Terminate body. Two layouts exist: RFC 5040's and
// that of Linux siw on little-endian machines, which swaps the nibbles of the
// first byte and puts M, D, R into the low bits of the third. The flag bits
// tell them apart; without any flag siw's MPA errors are known by their codes,
// and siwPeer decides the rest. Headers that do not fit
// in b are left out; an error is returned only for less than four bytes.
func ParseTerminate(b []byte, siwPeer bool) (Terminate, error) {
	var t Terminate
	if len(b) < 4 {
		return t, ErrShort
	}
	layer, typ, flags := b[0]>>4, b[0]&0xf, b[2]
	mpa := b[0] == TypeOperation && b[1] >= 1 && b[1] <= 4 // no such RDMAP codes
	if flags&0xe0 == 0 && (flags&0x07 != 0 || mpa || siwPeer) {
		t.SIW = true
		layer, typ = typ, layer
		var f byte
		for i, bit := range [3]byte{termM, termD, termR} {
			if flags&(1<<i) != 0 {
				f |= bit
			}
		}
		flags = f
	}
	t.Code = MakeCode(layer, typ, b[1])
	if flags&termD == 0 || len(b) < 6+taggedULPDU {
		return t, nil
	}
	rest := b[6:]
	var hdr [UntaggedLen]byte
	n := HeaderLen(rest[0]) - LenField
	if len(rest) < n {
		return t, nil
	}
	t.SegLen = binary.BigEndian.Uint16(b[4:])
	// The header quoted is one that was found wrong: the parser's verdict on
	// it does not matter. siw's length leaves the header out.
	binary.BigEndian.PutUint16(hdr[:], uint16(max(int(t.SegLen), n)))
	copy(hdr[LenField:], rest[:n])
	copy(t.Raw[:], rest[:n])
	_ = ParseHeader(hdr[:n+LenField], &t.DDP)
	t.HasDDP = true
	rest = rest[n:]
	if flags&termR != 0 && len(rest) >= ReadReqLen {
		t.HasReq = true
		t.Req.Parse(rest)
	}
	return t, nil
}
