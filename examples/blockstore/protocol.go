package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	version    = 1
	headerSize = 48

	minBlock     = 4 << 10
	maxBlock     = 1 << 20 // an RDS operation carries up to 1 MiB
	defaultBlock = 256 << 10
	defaultPort  = 4000

	// maxText and maxMore bound the tail.
	maxText    = 1024
	maxMore    = 512
	maxMessage = headerSize + 8*maxMore
)

// kind is the type of a message.
type kind uint8

const (
	kindOpen      kind = 1
	kindOpened    kind = 2
	kindRead      kind = 3
	kindDone      kind = 4
	kindWrite     kind = 5
	kindFetched   kind = 6
	kindDurable   kind = 7
	kindCommit    kind = 8
	kindCommitted kind = 9
	kindFailed    kind = 10
)

func (k kind) String() string {
	names := [...]string{"", "OPEN", "OPENED", "READ", "DONE", "WRITE", "FETCHED", "DURABLE", "COMMIT", "COMMITTED", "FAILED"}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("type %d", uint8(k))
	}
	return names[k]
}

// status says why a request failed.
type status uint16

const (
	statusOK       status = 0
	statusRetry    status = 1  // the operation was dropped or its outcome is unknown: ask again
	statusBusy     status = 2  // too many requests in hand for this client, nothing was done: ask again
	statusChecksum status = 3  // the block that arrived is not the one announced: ask again
	statusBad      status = 4  // a request this server does not take
	statusRange    status = 5  // no such block
	statusShort    status = 6  // the export ends before the block does: truncated while served
	statusNoSpace  status = 7  // no space left for the block
	statusIO       status = 8  // the export cannot be read or written
	statusStale    status = 9  // another client has taken over writing
	statusReadOnly status = 10 // the export is served read-only
	statusRefused  status = 11 // the operation was refused (cookie, rights, bounds) or failed
)

// transient: nothing is wrong with the request, it may be made anew any time.
func (s status) transient() bool { return s == statusRetry || s == statusBusy }

// suspect: making the request anew may help, but not for ever.
func (s status) suspect() bool { return s == statusChecksum || s == statusRefused }

const flagWrite, flagTellFetched uint16 = 1, 1

// message is any message of the protocol; which fields mean something depends
// on the kind, see the package comment.
type message struct {
	kind      kind
	status    status
	flags     uint16
	id        uint64 // request number
	session   uint64
	block     uint64 // or size
	blockSize uint32
	length    uint32
	crc       uint32
	window    uint32
	text      string   // FAILED
	more      []uint64 // DURABLE: further request numbers
}

// append adds m's bytes to b.
func (m *message) append(b []byte) []byte {
	b = append(b, 'B', 'S', version, byte(m.kind))
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(m.status))
	b = le.AppendUint16(b, m.flags)
	b = le.AppendUint64(b, m.id)
	b = le.AppendUint64(b, m.session)
	b = le.AppendUint64(b, m.block)
	b = le.AppendUint32(b, m.blockSize)
	b = le.AppendUint32(b, m.length)
	b = le.AppendUint32(b, m.crc)
	b = le.AppendUint32(b, m.window)
	b = append(b, m.text[:min(len(m.text), maxText)]...)
	for _, r := range m.more {
		b = le.AppendUint64(b, r)
	}
	return b
}

// errMessage: the bytes are no message of this protocol.
var errMessage = errors.New("not a blockstore message")

// parse decodes one message. Errors wrap errMessage.
func parse(b []byte) (message, error) {
	bad := func(format string, args ...any) (message, error) {
		return message{}, fmt.Errorf("%w: "+format, append([]any{errMessage}, args...)...)
	}
	if len(b) < headerSize {
		return bad("%d bytes, the header has %d", len(b), headerSize)
	}
	if b[0] != 'B' || b[1] != 'S' {
		return bad("magic %#x %#x", b[0], b[1])
	}
	if b[2] != version {
		return bad("version %d, this is version %d", b[2], version)
	}
	le := binary.LittleEndian
	m := message{
		kind:      kind(b[3]),
		status:    status(le.Uint16(b[4:])),
		flags:     le.Uint16(b[6:]),
		id:        le.Uint64(b[8:]),
		session:   le.Uint64(b[16:]),
		block:     le.Uint64(b[24:]),
		blockSize: le.Uint32(b[32:]),
		length:    le.Uint32(b[36:]),
		crc:       le.Uint32(b[40:]),
		window:    le.Uint32(b[44:]),
	}
	if m.kind < kindOpen || m.kind > kindFailed {
		return bad("%v", m.kind)
	}
	tail := b[headerSize:]
	switch m.kind {
	case kindFailed:
		if len(tail) > maxText {
			return bad("%d bytes of text, at most %d", len(tail), maxText)
		}
		m.text = string(tail)
	case kindDurable:
		if len(tail)%8 != 0 || len(tail) > 8*maxMore {
			return bad("%d bytes of request numbers", len(tail))
		}
		for ; len(tail) > 0; tail = tail[8:] {
			m.more = append(m.more, le.Uint64(tail))
		}
	default:
		if len(tail) > 0 {
			return bad("%d bytes after a %v", len(tail), m.kind)
		}
	}
	return m, nil
}

// checkBlock says what is wrong with the geometry of a READ or WRITE.
func (m *message) checkBlock(largest int) error {
	switch {
	case m.blockSize < minBlock || int64(m.blockSize) > int64(largest):
		return fmt.Errorf("block size %d, want %d to %d", m.blockSize, minBlock, largest)
	case m.length == 0 || m.length > m.blockSize:
		return fmt.Errorf("length %d of a block of %d", m.length, m.blockSize)
	case m.block > (1<<62)/uint64(m.blockSize):
		return fmt.Errorf("block number %d", m.block)
	}
	return nil
}

// offset is where the block starts in the file.
func (m *message) offset() int64 { return int64(m.block) * int64(m.blockSize) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// failure is a FAILED answer as an error.
type failure struct {
	status status
	text   string
}

func (f *failure) Error() string { return f.text }

func failf(s status, format string, args ...any) *failure {
	return &failure{s, fmt.Sprintf(format, args...)}
}
