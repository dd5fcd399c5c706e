package cmsg

import (
	"encoding/binary"
	"math"
)

// HeaderSize is the size of struct cmsghdr: u64 cmsg_len, s32 cmsg_level, s32
// cmsg_type.
const HeaderSize = 16

const align = 8

// Len returns the cmsg_len of n bytes of data (CMSG_LEN).
func Len(n int) int { return HeaderSize + n }

// Space returns how many bytes of a control buffer n bytes of data take
// (CMSG_SPACE).
func Space(n int) int { return (HeaderSize + n + align - 1) &^ (align - 1) }

var order = binary.NativeEndian

// Append appends one control message to b, padded to the alignment.
func Append(b []byte, level int32, typ Type, data []byte) []byte {
	b = appendHeader(b, level, typ, len(data))
	return pad(append(b, data...), len(data))
}

func appendHeader(b []byte, level int32, typ Type, n int) []byte {
	b = order.AppendUint64(b, uint64(Len(n)))
	b = order.AppendUint32(b, uint32(level))
	return order.AppendUint32(b, uint32(typ))
}

// pad ends a message of n bytes of data.
func pad(b []byte, n int) []byte {
	var zero [align]byte
	return append(b, zero[:Space(n)-Len(n)]...)
}

// Message is one control message of a chain. Data is a part of the buffer.
type Message struct {
	Level int32
	Type  Type
	Data  []byte
}

// Next returns the first message of a control buffer and the bytes behind it. ok is
// false at the end. As in the kernel, a rest that is too short for a header ends the
// chain, and a length below the header's or beyond the buffer is EINVAL.
func Next(b []byte) (m Message, rest []byte, ok bool, err error) {
	if len(b) < HeaderSize {
		return Message{}, nil, false, nil
	}
	n := order.Uint64(b)
	if n < HeaderSize || n > uint64(len(b)) {
		return Message{}, nil, false, invalid("cmsg_len %d with %d bytes of control data left", n, len(b))
	}
	m = Message{
		Level: int32(order.Uint32(b[8:])),
		Type:  Type(order.Uint32(b[12:])),
		Data:  b[HeaderSize:n:n],
	}
	next := min(uint64(Space(int(n)-HeaderSize)), uint64(len(b)))
	return m, b[next:], true, nil
}

// need checks that data holds a struct of size bytes; more is allowed.
func need(what string, data []byte, size int) error {
	if len(data) < size {
		return invalid("%s of %d bytes, need %d", what, len(data), size)
	}
	return nil
}

// addOverflows reports whether a+b wraps around.
func addOverflows(a, b uint64) bool { return b > math.MaxUint64-a }
