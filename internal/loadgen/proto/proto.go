// Package proto is the protocol between the two ends of rdsctl bench: the datagrams between
// their control sockets, and the pattern of the data that they send and verify.
//
// Every message begins with magic, version and type. The type determines the length.
// Numbers are big-endian.
package proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/abi"
)

// Version is the version of the messages. Both ends must have the same.
const Version = 1

const magic = 0x72647362 // "rdsb"

// MaxMessage is the size of the longest message in bytes.
const MaxMessage = 2048

// Mode is what is measured.
type Mode uint8

// Modes.
const (
	RTT       Mode = 1 // a message there and the same back
	Rate      Mode = 2 // messages one way
	RDMARead  Mode = 3
	RDMAWrite Mode = 4
)

var modes = map[Mode]string{RTT: "rtt", Rate: "rate", RDMARead: "rdma-read", RDMAWrite: "rdma-write"}

func (m Mode) String() string {
	if s, ok := modes[m]; ok {
		return s
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// RDMA reports whether m measures operations.
func (m Mode) RDMA() bool { return m == RDMARead || m == RDMAWrite }

// ParseMode reads a mode's name.
func ParseMode(s string) (Mode, error) {
	for m, name := range modes {
		if s == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q is none of rtt, rate, rdma-read, rdma-write", s)
}

// Limits of a session.
const (
	MaxSockets  = 256
	MaxDepth    = 4096
	MaxSize     = abi.MaxMessage
	MaxMemory   = 1 << 30 // of a session's RDMA buffer, and of each socket's buffers
	MinVerified = 16      // sequence and pattern, bytes
)

// Hello asks for a session. The answer is Welcome or Refuse.
type Hello struct {
	Mode    Mode
	Verify  bool
	Sockets uint16
	Size    uint32 // of a message or operation, bytes
	Depth   uint32 // outstanding per socket
	Sample  uint32 // mode Rate: the server answers every Sample messages
}

// ErrLimits says that no server accepts such a session.
var ErrLimits = errors.New("beyond the limits")

// Check returns an error that wraps ErrLimits and says what is wrong, or nil.
func (h *Hello) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrLimits}, args...)...)
	}
	switch {
	case modes[h.Mode] == "":
		return bad("%v is not known here", h.Mode)
	case h.Sockets < 1 || h.Sockets > MaxSockets:
		return bad("%d sockets, want 1 to %d", h.Sockets, MaxSockets)
	case h.Depth < 1 || h.Depth > MaxDepth:
		return bad("%d outstanding, want 1 to %d", h.Depth, MaxDepth)
	case h.Size > MaxSize:
		return bad("%d bytes, want at most %d", h.Size, MaxSize)
	case h.Verify && h.Size < MinVerified:
		return bad("%d bytes are too few to verify, want %d", h.Size, MinVerified)
	case h.Mode.RDMA() && h.Size == 0:
		return bad("an operation of no bytes")
	case h.Mode == Rate && (h.Sample < 1 || h.Sample > MaxDepth):
		return bad("an answer every %d messages, want 1 to %d", h.Sample, MaxDepth)
	case uint64(h.Sockets)*uint64(h.Depth)*uint64(h.Size) > MaxMemory:
		return bad("%d sockets with %d of %d bytes each outstanding are more than %d bytes", h.Sockets, h.Depth, h.Size, MaxMemory)
	}
	return nil
}

// Welcome says where the session's sockets are.
type Welcome struct {
	Cookie uint64 // RDMA: names Sockets times Depth slots of Size bytes, socket by socket
	Ports  []uint16
}

// Code is the reason for a refusal.
type Code uint16

// Codes.
const (
	Busy    Code = 1 // too many sessions
	Limits  Code = 2 // beyond the limits
	Failed  Code = 3 // an error in the server
	Leaving Code = 4 // the server ends
)

// Refuse refuses a Hello. A server that ends sends it to all clients.
type Refuse struct {
	Code Code
	Text string
}

// Mark tells the server that the measurement begins.
type Mark struct{}

// Alive is the server's sign of life.
type Alive struct{}

// Bye ends a session. Sent is how many messages should arrive in total.
type Bye struct{ Sent uint64 }

// Final answers Bye.
type Final struct {
	Received  uint64        // messages
	CPU       time.Duration // of the server's process since Mark
	DaemonCPU time.Duration // of its daemon, negative if it is not known
	Wrong     string        // what verification found, "" for nothing
}

// ErrMessage says that bytes are not a message of this protocol.
var ErrMessage = errors.New("not a message of rdsctl bench")

// VersionError says that the other end has another version.
type VersionError struct{ Theirs uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("rdsctl bench at the other end speaks version %d of its protocol, this one %d: use the same rdsctl at both", e.Theirs, Version)
}

const headerSize = 8

// Append appends m, one of the types above, to b.
func Append(b []byte, m any) []byte {
	be := binary.BigEndian
	start := len(b)
	b = be.AppendUint32(b, magic)
	b = be.AppendUint16(b, Version)
	b = append(b, 0, 0)
	text := func(s string) {
		s = s[:min(len(s), MaxMessage/2)]
		b = be.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	var kind byte
	switch m := m.(type) {
	case *Hello:
		kind = 1
		b = append(b, byte(m.Mode), flag(m.Verify))
		b = be.AppendUint16(b, m.Sockets)
		b = be.AppendUint32(b, m.Size)
		b = be.AppendUint32(b, m.Depth)
		b = be.AppendUint32(b, m.Sample)
	case *Welcome:
		kind = 2
		b = be.AppendUint64(b, m.Cookie)
		b = be.AppendUint16(b, uint16(len(m.Ports)))
		for _, p := range m.Ports {
			b = be.AppendUint16(b, p)
		}
	case *Refuse:
		kind = 3
		b = be.AppendUint16(b, uint16(m.Code))
		text(m.Text)
	case *Mark:
		kind = 4
	case *Alive:
		kind = 5
	case *Bye:
		kind = 6
		b = be.AppendUint64(b, m.Sent)
	case *Final:
		kind = 7
		for _, v := range []uint64{m.Received, uint64(m.CPU), uint64(m.DaemonCPU)} {
			b = be.AppendUint64(b, v)
		}
		text(m.Wrong)
	default:
		panic(fmt.Sprintf("bench: no message: %T", m))
	}
	b[start+6] = kind
	return b
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// reader reads fields of a message. Behind the end, fields are 0 and short is set.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return make([]byte, n)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u8() byte     { return r.take(1)[0] }
func (r *reader) u16() uint16  { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32  { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64  { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) text() string { return string(r.take(int(r.u16()))) }

// Parse reads a message. Its error is a *VersionError or ErrMessage.
func Parse(b []byte) (any, error) {
	if len(b) < headerSize || binary.BigEndian.Uint32(b) != magic {
		return nil, fmt.Errorf("%w: %d bytes", ErrMessage, len(b))
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != Version {
		return nil, &VersionError{v}
	}
	r := reader{b: b[headerSize:]}
	var m any
	switch b[6] {
	case 1:
		h := &Hello{Mode: Mode(r.u8())}
		h.Verify = r.u8() != 0
		h.Sockets, h.Size, h.Depth, h.Sample = r.u16(), r.u32(), r.u32(), r.u32()
		m = h
	case 2:
		w := &Welcome{Cookie: r.u64()}
		n := int(r.u16())
		if n > MaxSockets {
			return nil, fmt.Errorf("%w: %d ports", ErrMessage, n)
		}
		for range n {
			w.Ports = append(w.Ports, r.u16())
		}
		m = w
	case 3:
		m = &Refuse{Code: Code(r.u16()), Text: r.text()}
	case 4:
		m = &Mark{}
	case 5:
		m = &Alive{}
	case 6:
		m = &Bye{Sent: r.u64()}
	case 7:
		m = &Final{Received: r.u64(), CPU: time.Duration(r.u64()), DaemonCPU: time.Duration(r.u64()), Wrong: r.text()}
	default:
		return nil, fmt.Errorf("%w: type %d", ErrMessage, b[6])
	}
	if r.short || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: type %d of %d bytes", ErrMessage, b[6], len(b))
	}
	return m, nil
}
