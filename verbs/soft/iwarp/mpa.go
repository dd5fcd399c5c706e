package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MPA start-up frames.
const (
	MPAHeaderLen  = 20  // fixed part
	MaxMPAPrivate = 512 // PD_Length's limit
	EnhancedLen   = 4   // IRD/ORD block of revision 2, part of the private data
	// MaxPrivate is what is left for the consumer.
	MaxPrivate = MaxMPAPrivate - EnhancedLen
	// NoDepth in IRD or ORD means "not negotiated here" (RFC 6581 section 9.1).
	NoDepth = 0x3fff
)

const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"

	mpaMarkers  = 0x80
	mpaCRC      = 0x40
	mpaReject   = 0x20
	mpaEnhanced = 0x10

	enhFlagHi = 0x8000 // A (P2P) in word 0, C (RTR by Write) in word 1
	enhFlagLo = 0x4000 // B (RTR by Send) in word 0, D (RTR by Read) in word 1
)

// Errors of ParseMPA. All of them mean: close the connection, there is no
// Terminate before MPA is up.
var (
	ErrMPAKey      = errors.New("iwarp: not an MPA start-up frame of the expected kind")
	ErrMPARevision = errors.New("iwarp: MPA revision not supported")
	ErrMPALength   = errors.New("iwarp: MPA private data length")
)

// MPA is a Request or a Reply.
type MPA struct {
	Reply    bool
	Markers  bool // its sender wants markers in what it receives
	CRC      bool // its sender wants CRCs
	Reject   bool // replies only
	Rev      uint8
	Enhanced bool // revision 2 with the block below (RFC 6581)

	IRD, ORD                   uint16 // 14 bits
	P2P                        bool   // A: an RTR message opens the stream
	RTRSend, RTRWrite, RTRRead bool   // B, C, D: kinds offered or accepted

	Private []byte // the consumer's part; ParseMPA: part of its argument
}

// MPALen returns the length of the whole frame that has this fixed part.
func MPALen(fixed []byte, reply bool) (int, error) {
	if len(fixed) < MPAHeaderLen {
		return 0, ErrMPALength
	}
	key := keyRequest
	if reply {
		key = keyReply
	}
	if string(fixed[:16]) != key {
		return 0, ErrMPAKey
	}
	n := int(binary.BigEndian.Uint16(fixed[18:]))
	if n > MaxMPAPrivate {
		return 0, fmt.Errorf("%w: %d bytes, limit %d", ErrMPALength, n, MaxMPAPrivate)
	}
	return MPAHeaderLen + n, nil
}

// ParseMPA decodes the whole frame in b.
func ParseMPA(b []byte, reply bool) (MPA, error) {
	var m MPA
	n, err := MPALen(b, reply)
	if err != nil {
		return m, err
	}
	if n != len(b) {
		return m, fmt.Errorf("%w: frame of %d bytes says %d", ErrMPALength, len(b), n)
	}
	f := b[16]
	m.Reply = reply
	m.Markers = f&mpaMarkers != 0
	m.CRC = f&mpaCRC != 0
	m.Reject = reply && f&mpaReject != 0
	m.Rev = b[17]
	m.Private = b[MPAHeaderLen:]
	if m.Rev < 1 || m.Rev > 2 {
		return m, fmt.Errorf("%w: %d", ErrMPARevision, m.Rev)
	}
	if m.Rev < 2 || f&mpaEnhanced == 0 {
		return m, nil
	}
	if len(m.Private) < EnhancedLen {
		return m, fmt.Errorf("%w: enhanced frame without its block", ErrMPALength)
	}
	w0 := binary.BigEndian.Uint16(m.Private)
	w1 := binary.BigEndian.Uint16(m.Private[2:])
	m.Private = m.Private[EnhancedLen:]
	m.Enhanced = true
	m.IRD, m.ORD = w0&NoDepth, w1&NoDepth
	m.P2P = w0&enhFlagHi != 0
	if m.P2P {
		m.RTRSend = w0&enhFlagLo != 0
		m.RTRWrite = w1&enhFlagHi != 0
		m.RTRRead = w1&enhFlagLo != 0
	}
	return m, nil
}

// Append appends the frame to b. Private data beyond what PD_Length can say
// and depths beyond 14 bits are the caller's error and are cut.
func (m *MPA) Append(b []byte) []byte {
	key := keyRequest
	if m.Reply {
		key = keyReply
	}
	var f byte
	if m.Markers {
		f |= mpaMarkers
	}
	if m.CRC {
		f |= mpaCRC
	}
	if m.Reject && m.Reply {
		f |= mpaReject
	}
	priv := m.Private
	n := min(len(priv), MaxMPAPrivate)
	if m.Enhanced {
		f |= mpaEnhanced
		n = min(len(priv), MaxPrivate) + EnhancedLen
	}
	b = append(b, key...)
	b = append(b, f, m.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if m.Enhanced {
		w0, w1 := m.IRD&NoDepth, m.ORD&NoDepth
		if m.P2P {
			w0 |= enhFlagHi
			if m.RTRSend {
				w0 |= enhFlagLo
			}
			if m.RTRWrite {
				w1 |= enhFlagHi
			}
			if m.RTRRead {
				w1 |= enhFlagLo
			}
		}
		b = binary.BigEndian.AppendUint16(b, w0)
		b = binary.BigEndian.AppendUint16(b, w1)
		n -= EnhancedLen
	}
	return append(b, priv[:n]...)
}
