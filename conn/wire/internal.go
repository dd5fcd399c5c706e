package wire

import (
	"encoding/binary"
	"fmt"
)

// InternalType is the type of an internal message (flag INTERNAL), 0 for
// datagrams.
type InternalType uint16

const (
	TypeHello    InternalType = 1
	TypeGrant    InternalType = 2
	TypeRevoke   InternalType = 3
	TypeRevoked  InternalType = 4
	TypeNoSock   InternalType = 5
	TypeRefused  InternalType = 6
	TypeGrantNak InternalType = 7
	TypeBound    InternalType = 8
	TypeResult   InternalType = 9
	TypeAsk      InternalType = 10
)

func (t InternalType) String() string {
	switch t {
	case TypeHello:
		return "HELLO"
	case TypeGrant:
		return "GRANT"
	case TypeRevoke:
		return "REVOKE"
	case TypeRevoked:
		return "REVOKED"
	case TypeNoSock:
		return "NOSOCK"
	case TypeRefused:
		return "REFUSED"
	case TypeGrantNak:
		return "GRANT_NAK"
	case TypeBound:
		return "BOUND"
	case TypeResult:
		return "ATOMIC_RESULT"
	case TypeAsk:
		return "ASK"
	}
	return fmt.Sprintf("INTERNAL(%d)", uint16(t))
}

// Body lengths in bytes. A longer body is accepted, its end ignored.
const (
	HelloLen    = 56
	GrantLen    = 32
	RevokeLen   = 8
	NoticeLen   = 16
	GrantNakLen = 8
	BoundLen    = 24
	ResultLen   = 32
	AskLen      = 16
)

// HelloVersion is the version of the extension HELLO announces.
const HelloVersion = ExtVersion

// Features of HELLO: what the sender's device and daemon serve.
const (
	FeatureAtomics uint32 = 1 << 0 // FETCH_AND_ADD, CMP_AND_SWP
	FeatureMasked  uint32 = 1 << 1 // their masked forms
	// FeatureCarried: the sender's daemon carries out the atomics of messages with FlagAtomic,
	// plain and masked.
	FeatureCarried uint32 = 1 << 2
	FeatureAsk     uint32 = 1 << 3 // it answers ASK
	// FeatureTraceparent: it takes messages with a Traceparent.
	FeatureTraceparent uint32 = 1 << 4
)

// Hello is the first frame each way on a connection.
type Hello struct {
	Version   uint16
	Features  uint32 // Feature*; unknown bits mean nothing
	Instance  uint64 // the sender's daemon instance
	Ack       uint64 // highest sequence received from AckInst and handed up
	Notice    uint64 // newest internal message not yet acked, 0 = none
	MaxSend   uint32 // largest SEND the sender receives, bytes
	Credits   uint32 // receive buffers granted, beyond the one HELLO uses
	ReadDepth uint32 // READs and atomics served at a time
	Flags     uint32 // the lowest three bits: one less than Paths
	AckInst   uint64 // instance of the peer that Ack counts, 0 = none met yet
}

// pathsMask are the bits of Hello.Flags that say how many paths the sender wants.
const pathsMask = MaxPaths - 1

// SetPaths has h say that the sender wants n paths, 1 to MaxPaths.
func (h *Hello) SetPaths(n int) { h.Flags = h.Flags&^pathsMask | uint32(n-1)&pathsMask }

// Paths is how many paths the sender wants. A daemon that does not know paths says 1.
func (h *Hello) Paths() int { return 1 + int(h.Flags&pathsMask) }

// Append encodes h behind b.
func (h *Hello) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, h.Version)
	b = be.AppendUint16(b, 0)
	b = be.AppendUint32(b, h.Features)
	b = be.AppendUint64(b, h.Instance)
	b = be.AppendUint64(b, h.Ack)
	b = be.AppendUint64(b, h.Notice)
	b = be.AppendUint32(b, h.MaxSend)
	b = be.AppendUint32(b, h.Credits)
	b = be.AppendUint32(b, h.ReadDepth)
	b = be.AppendUint32(b, h.Flags)
	return be.AppendUint64(b, h.AckInst)
}

// ParseHello decodes a HELLO body. The error says what is wrong. The version is
// checked before the length, because other versions may be shorter.
func ParseHello(b []byte) (h Hello, err error) {
	be := binary.BigEndian
	if len(b) < 2 {
		return h, shortBody(TypeHello, b, HelloLen)
	}
	if h.Version = be.Uint16(b); h.Version != HelloVersion {
		return h, fmt.Errorf("wire: HELLO version %d, want %d", h.Version, HelloVersion)
	}
	if len(b) < HelloLen {
		return h, shortBody(TypeHello, b, HelloLen)
	}
	h.Features = be.Uint32(b[4:])
	h.Instance = be.Uint64(b[8:])
	h.Ack = be.Uint64(b[16:])
	h.Notice = be.Uint64(b[24:])
	h.MaxSend = be.Uint32(b[32:])
	h.Credits = be.Uint32(b[36:])
	h.ReadDepth = be.Uint32(b[40:])
	h.Flags = be.Uint32(b[44:])
	h.AckInst = be.Uint64(b[48:])
	return h, nil
}

// Grant allows the peer operations on a region (GRANT).
type Grant struct {
	Cookie   uint64 // rkey | offset<<32
	Length   uint64 // bytes
	Rights   uint32 // abi.Rights: 1 read, 2 write, 4 atomic, 8 use once
	Owner    uint16 // port of the region's socket
	Grantee  uint16 // port that may use it, 0 = any socket of the peer
	OwnerInc uint32 // incarnation of the owner
	Region   uint32 // number of the region: no other one of the owner's daemon has it
}

// Append encodes g behind b.
func (g *Grant) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, g.Cookie)
	b = be.AppendUint64(b, g.Length)
	b = be.AppendUint32(b, g.Rights)
	b = be.AppendUint16(b, g.Owner)
	b = be.AppendUint16(b, g.Grantee)
	b = be.AppendUint32(b, g.OwnerInc)
	return be.AppendUint32(b, g.Region)
}

// ParseGrant decodes a GRANT body.
func ParseGrant(b []byte) (g Grant, err error) {
	if len(b) < GrantLen {
		return g, shortBody(TypeGrant, b, GrantLen)
	}
	be := binary.BigEndian
	g.Cookie = be.Uint64(b[0:])
	g.Length = be.Uint64(b[8:])
	g.Rights = be.Uint32(b[16:])
	g.Owner = be.Uint16(b[20:])
	g.Grantee = be.Uint16(b[22:])
	g.OwnerInc = be.Uint32(b[24:])
	g.Region = be.Uint32(b[28:])
	return g, nil
}

// Why a GRANT was refused.
const (
	NakFull     uint16 = 1 // the table of what this peer may use is full
	NakConflict uint16 = 2 // an earlier GRANT of the key says otherwise
	NakOver     uint16 = 3 // the key was taken back, or was for one use and had it
)

// GrantNak refuses a GRANT (GRANT_NAK).
type GrantNak struct {
	RKey    uint32
	Grantee uint16 // as in the GRANT
	Reason  uint16 // Nak*
}

// Append encodes n behind b.
func (k *GrantNak) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, k.RKey)
	b = binary.BigEndian.AppendUint16(b, k.Grantee)
	return binary.BigEndian.AppendUint16(b, k.Reason)
}

// ParseGrantNak decodes a GRANT_NAK body.
func ParseGrantNak(b []byte) (n GrantNak, err error) {
	if len(b) < GrantNakLen {
		return n, shortBody(TypeGrantNak, b, GrantNakLen)
	}
	be := binary.BigEndian
	n.RKey = be.Uint32(b)
	n.Grantee = be.Uint16(b[4:])
	n.Reason = be.Uint16(b[6:])
	return n, nil
}

// What ASK says: a question, or the answer to one.
const (
	AskQuestion uint16 = 0 // may every socket of mine use the key?
	AskGranted  uint16 = 1 // yes: a GRANT went ahead of this on the lane
	AskNoKey    uint16 = 2 // there is no such key
	AskNotOpen  uint16 = 3 // its owner has not exposed it to everybody
	AskNoRoom   uint16 = 4 // its owner, or its daemon, has no room for one more grant
)

// Ask asks for a key that was not granted, by its cookie, or answers that (ASK).
type Ask struct {
	Cookie uint64
	Number uint32 // of the question: its answer has the same
	Says   uint16 // Ask*
}

// Append encodes a behind b.
func (a *Ask) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, a.Cookie)
	b = binary.BigEndian.AppendUint32(b, a.Number)
	b = binary.BigEndian.AppendUint16(b, a.Says)
	return binary.BigEndian.AppendUint16(b, 0)
}

// ParseAsk decodes an ASK body.
func ParseAsk(b []byte) (a Ask, err error) {
	if len(b) < AskLen {
		return a, shortBody(TypeAsk, b, AskLen)
	}
	be := binary.BigEndian
	return Ask{Cookie: be.Uint64(b), Number: be.Uint32(b[8:]), Says: be.Uint16(b[12:])}, nil
}

// MaxConns is how many connections lead to one peer address: MaxPaths in each of 256 lanes.
const MaxConns = 256 * MaxPaths

// Revoke withdraws the grants on an rkey (REVOKE), or answers that they are
// withdrawn and no operation uses them any more (REVOKED).
type Revoke struct {
	RKey uint32
	// Lanes is how many connections carry a REVOKE for this withdrawal, 1 to MaxConns. A
	// GRANT of the key that arrives before all of them have arrived is older than
	// the withdrawal. In a REVOKED it is 1.
	Lanes uint32
}

// Append encodes r behind b.
func (r *Revoke) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.RKey)
	return binary.BigEndian.AppendUint32(b, r.Lanes)
}

// ParseRevoke decodes a REVOKE or REVOKED body.
func ParseRevoke(b []byte) (r Revoke, err error) {
	if len(b) < RevokeLen {
		return r, shortBody(TypeRevoke, b, RevokeLen)
	}
	r.RKey = binary.BigEndian.Uint32(b)
	r.Lanes = binary.BigEndian.Uint32(b[4:])
	if r.Lanes == 0 || r.Lanes > MaxConns {
		return r, fmt.Errorf("wire: REVOKE on %d connections, want 1 to %d", r.Lanes, MaxConns)
	}
	return r, nil
}

// Notice tells the sender of a message what became of it at the receiver (NOSOCK,
// REFUSED).
type Notice struct {
	Seq          uint64 // of the message
	DPort, SPort uint16 // its ports
	SrcInc       uint32 // its source's incarnation
}

// Append encodes n behind b.
func (n *Notice) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, n.Seq)
	b = be.AppendUint16(b, n.DPort)
	b = be.AppendUint16(b, n.SPort)
	return be.AppendUint32(b, n.SrcInc)
}

// ParseNotice decodes a NOSOCK or REFUSED body.
func ParseNotice(b []byte) (n Notice, err error) {
	if len(b) < NoticeLen {
		return n, shortBody(TypeNoSock, b, NoticeLen)
	}
	be := binary.BigEndian
	n.Seq = be.Uint64(b[0:])
	n.DPort = be.Uint16(b[8:])
	n.SPort = be.Uint16(b[10:])
	n.SrcInc = be.Uint32(b[12:])
	return n, nil
}

func shortBody(t InternalType, b []byte, want int) error {
	return fmt.Errorf("wire: %v body of %d bytes, want %d", t, len(b), want)
}

// Bound tells the sender of a message that named no incarnation which socket
// accepted the message (BOUND).
type Bound struct {
	Notice        // of the message
	DstInc uint32 // incarnation of the socket at DPort, not 0
}

// Append encodes b behind dst.
func (b *Bound) Append(dst []byte) []byte {
	dst = b.Notice.Append(dst)
	dst = binary.BigEndian.AppendUint32(dst, b.DstInc)
	return binary.BigEndian.AppendUint32(dst, 0)
}

// ParseBound decodes a BOUND body.
func ParseBound(body []byte) (b Bound, err error) {
	if len(body) < BoundLen {
		return b, shortBody(TypeBound, body, BoundLen)
	}
	if b.Notice, err = ParseNotice(body); err == nil {
		b.DstInc = binary.BigEndian.Uint32(body[NoticeLen:])
	}
	return b, err
}
