package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	version = 2
	// HeaderSize is a message without a tail.
	HeaderSize = 48

	MinBlock     = 4 << 10
	MaxBlock     = 1 << 20 // an RDS operation carries up to 1 MiB
	DefaultBlock = 256 << 10
	DefaultPort  = 4000

	// MaxZero bounds one ZERO, so that it does not keep a worker for long where
	// zeros have to be written.
	MaxZero = 64 << 20

	// DefaultSmall is the largest read or write whose bytes travel in the message.
	// MaxSmall bounds what server and client may agree on.
	DefaultSmall = 16 << 10
	MaxSmall     = 64 << 10

	// maxText and MaxMore bound the tails of FAILED, DURABLE and MAPPED.
	maxText = 1024
	MaxMore = 512

	// MaxMessage is the longest message, one with MaxSmall bytes of a block.
	MaxMessage = HeaderSize + MaxSmall
)

// Kind is the type of a message.
type Kind uint8

const (
	KindOpen      Kind = 1
	KindOpened    Kind = 2
	KindRead      Kind = 3
	KindDone      Kind = 4
	KindWrite     Kind = 5
	KindGrant     Kind = 6
	KindDurable   Kind = 7
	KindCommit    Kind = 8
	KindCommitted Kind = 9
	KindFailed    Kind = 10
	KindWritten   Kind = 11
	KindFlush     Kind = 12
	KindZero      Kind = 13
	KindGranted   Kind = 14
	KindMap       Kind = 15
	KindMapped    Kind = 16
)

func (k Kind) String() string {
	names := [...]string{"", "OPEN", "OPENED", "READ", "DONE", "WRITE", "GRANT", "DURABLE", "COMMIT", "COMMITTED", "FAILED",
		"WRITTEN", "FLUSH", "ZERO", "GRANTED", "MAP", "MAPPED"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("type %d", uint8(k))
	}
	return names[k]
}

// Status says why a request failed.
type Status uint16

const (
	StatusOK       Status = 0
	StatusRetry    Status = 1  // the operation was dropped or its outcome is unknown: repeat the request
	StatusBusy     Status = 2  // too many requests of this client are in hand, nothing was done: repeat the request
	StatusChecksum Status = 3  // the block that arrived is not the one announced: repeat the request
	StatusBad      Status = 4  // a request this server does not take
	StatusRange    Status = 5  // no such block
	StatusShort    Status = 6  // the export ends before the block does: truncated while served
	StatusNoSpace  Status = 7  // no space left for the block
	StatusIO       Status = 8  // the export cannot be read or written
	StatusStale    Status = 9  // another client has taken over writing
	StatusReadOnly Status = 10 // the export is served read-only
	StatusRefused  Status = 11 // the operation was refused (cookie, rights, bounds) or failed
	StatusSlow     Status = 12 // zeroing is no faster here than writing

	StatusGrantOver Status = 13 // the buffers pushed into were taken back: ask for others
)

// Transient reports whether nothing is wrong with the request, so that it may be repeated
// at any time.
func (s Status) Transient() bool {
	return s == StatusRetry || s == StatusBusy || s == StatusGrantOver
}

// Suspect reports whether something is wrong, but a few repetitions of the request may
// help.
func (s Status) Suspect() bool { return s == StatusChecksum || s == StatusRefused }

// Flags of requests.
const (
	FlagWrite    uint16 = 1  // OPEN: write access
	FlagPushed   uint16 = 1  // WRITE: the bytes are in the granted buffer that Window names
	FlagBytes    uint16 = 2  // READ, WRITE: the block number is an offset in bytes, there is no block size
	FlagUnsynced uint16 = 4  // WRITE, ZERO: answer WRITTEN, do not wait for an fsync
	FlagHole     uint16 = 8  // ZERO: the storage may be given back
	FlagFast     uint16 = 16 // ZERO: not if it is no faster than writing
	FlagTrim     uint16 = 32 // ZERO: the content does not matter any more, nor whether anything is done
)

// Message is any message of the protocol. Its kind says which fields have a meaning: see
// the package comment.
type Message struct {
	Kind      Kind
	Status    Status
	Flags     uint16
	ID        uint64 // request number
	Session   uint64
	Block     uint64 // block number, offset or size
	BlockSize uint32
	Length    uint32
	CRC       uint32
	Window    uint32
	Text      string   // FAILED
	More      []uint64 // DURABLE: further request numbers
	Extents   []Extent // MAPPED: the first one begins at Block
	Data      []byte   // WRITE, DONE: the bytes of a small block; Parse does not copy them
}

// Append adds m's bytes to b.
func (m *Message) Append(b []byte) []byte {
	b = append(b, 'B', 'S', version, byte(m.Kind))
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(m.Status))
	b = le.AppendUint16(b, m.Flags)
	b = le.AppendUint64(b, m.ID)
	b = le.AppendUint64(b, m.Session)
	b = le.AppendUint64(b, m.Block)
	b = le.AppendUint32(b, m.BlockSize)
	b = le.AppendUint32(b, m.Length)
	b = le.AppendUint32(b, m.CRC)
	b = le.AppendUint32(b, m.Window)
	b = append(b, m.Data...)
	b = append(b, m.Text[:min(len(m.Text), maxText)]...)
	for _, r := range m.More {
		b = le.AppendUint64(b, r)
	}
	for _, e := range m.Extents {
		b = e.append(b)
	}
	return b
}

// setID sets the request number of a message that Append has written.
func setID(b []byte, id uint64) { binary.LittleEndian.PutUint64(b[8:], id) }

// ErrMessage says that the bytes are no message of this protocol.
var ErrMessage = errors.New("not a blockstore message")

// Parse decodes one message. Data is a part of b. Errors wrap ErrMessage.
func Parse(b []byte) (Message, error) {
	bad := func(format string, args ...any) (Message, error) {
		return Message{}, fmt.Errorf("%w: "+format, append([]any{ErrMessage}, args...)...)
	}
	if len(b) < HeaderSize {
		return bad("%d bytes, the header has %d", len(b), HeaderSize)
	}
	if b[0] != 'B' || b[1] != 'S' {
		return bad("magic %#x %#x", b[0], b[1])
	}
	if b[2] != version {
		return bad("version %d, this is version %d", b[2], version)
	}
	le := binary.LittleEndian
	m := Message{
		Kind:      Kind(b[3]),
		Status:    Status(le.Uint16(b[4:])),
		Flags:     le.Uint16(b[6:]),
		ID:        le.Uint64(b[8:]),
		Session:   le.Uint64(b[16:]),
		Block:     le.Uint64(b[24:]),
		BlockSize: le.Uint32(b[32:]),
		Length:    le.Uint32(b[36:]),
		CRC:       le.Uint32(b[40:]),
		Window:    le.Uint32(b[44:]),
	}
	if m.Kind < KindOpen || m.Kind > KindMapped {
		return bad("%v", m.Kind)
	}
	if err := m.parseTail(b[HeaderSize:]); err != nil {
		return bad("%w", err)
	}
	return m, nil
}

// parseTail takes what is behind the header.
func (m *Message) parseTail(tail []byte) error {
	switch m.Kind {
	case KindFailed:
		if len(tail) > maxText {
			return fmt.Errorf("%d bytes of text, at most %d", len(tail), maxText)
		}
		m.Text = string(tail)
	case KindDurable, KindMapped:
		if len(tail)%8 != 0 || len(tail) > 8*MaxMore {
			return fmt.Errorf("%d bytes behind a %v", len(tail), m.Kind)
		}
		for ; len(tail) > 0; tail = tail[8:] {
			v := binary.LittleEndian.Uint64(tail)
			if m.Kind == KindMapped {
				m.Extents = append(m.Extents, Extent{v >> 1, v&1 != 0})
			} else {
				m.More = append(m.More, v)
			}
		}
	case KindWrite, KindDone:
		// A pushed WRITE has no bytes, and neither has a DONE whose block went by RDMA.
		may := m.Kind == KindDone || m.Flags&FlagPushed != 0
		must := m.Kind == KindDone || m.Flags&FlagPushed == 0
		switch {
		case len(tail) == 0 && may:
		case must && len(tail) > 0 && len(tail) <= MaxSmall && uint64(len(tail)) == uint64(m.Length):
			m.Data = tail
		default:
			return fmt.Errorf("%d bytes behind a %v of %d", len(tail), m.Kind, m.Length)
		}
	default:
		if len(tail) > 0 {
			return fmt.Errorf("%d bytes after a %v", len(tail), m.Kind)
		}
	}
	return nil
}

// CheckBlock returns what is wrong with the place and length of a READ, WRITE, ZERO or MAP, or
// nil. largest is the server's largest block.
func (m *Message) CheckBlock(largest int) error {
	switch {
	case m.Kind == KindZero, m.Kind == KindMap:
		if m.Length == 0 || m.Block > 1<<62 {
			return fmt.Errorf("%d bytes at offset %d", m.Length, m.Block)
		}
	case m.Flags&FlagBytes != 0:
		if m.Length == 0 || int64(m.Length) > int64(largest) || m.Block > 1<<62 {
			return fmt.Errorf("%d bytes at offset %d, want 1 to %d", m.Length, m.Block, largest)
		}
	case m.BlockSize < MinBlock || int64(m.BlockSize) > int64(largest):
		return fmt.Errorf("block size %d, want %d to %d", m.BlockSize, MinBlock, largest)
	case m.Length == 0 || m.Length > m.BlockSize:
		return fmt.Errorf("length %d of a block of %d", m.Length, m.BlockSize)
	case m.Block > (1<<62)/uint64(m.BlockSize):
		return fmt.Errorf("block number %d", m.Block)
	}
	return nil
}

// Offset returns the offset of the block in the file.
func (m *Message) Offset() int64 {
	if m.Kind == KindZero || m.Kind == KindMap || m.Flags&FlagBytes != 0 {
		return int64(m.Block)
	}
	return int64(m.Block) * int64(m.BlockSize)
}

// Extent is some bytes of an export that are all in a hole, or all not.
type Extent struct {
	Length uint64
	Hole   bool
}

func (e Extent) append(b []byte) []byte {
	v := e.Length << 1
	if e.Hole {
		v |= 1
	}
	return binary.LittleEndian.AppendUint64(b, v)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Failure is a FAILED answer as an error.
type Failure struct {
	Status Status
	Text   string
}

func (f *Failure) Error() string { return f.Text }

func Failf(s Status, format string, args ...any) *Failure {
	return &Failure{s, fmt.Sprintf(format, args...)}
}
