package loadgen

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// fill writes message seq into b: its number, then words that depend on the number and the
// place. If the length is no multiple of 8, the last word is cut.
func fill(b []byte, seq uint64) {
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(w[:], word(seq, i))
		copy(b[i:], w[:])
	}
}

func word(seq uint64, at int) uint64 {
	if at == 0 {
		return seq
	}
	x := seq*0x9e3779b97f4a7c15 + uint64(at)*0xbf58476d1ce4e5b9
	return x ^ x>>29
}

// mismatch is where data was wrong.
type mismatch struct {
	Seq       uint64 // the expected message
	Offset    int    // of the first wrong byte
	Want, Got byte
	// Came is the number in the message itself.
	Came uint64
}

func (m *mismatch) Error() string {
	if m.Offset < 8 && m.Came != m.Seq {
		what := "lost before it"
		if m.Came < m.Seq {
			what = "out of order or twice"
		}
		return fmt.Sprintf("message %d came where %d was expected (%s): at offset %d want %#x, got %#x", m.Came, m.Seq, what, m.Offset, m.Want, m.Got)
	}
	return fmt.Sprintf("message %d is corrupt at offset %d: want %#x, got %#x", m.Seq, m.Offset, m.Want, m.Got)
}

// compare returns a *mismatch if b is not message seq.
func compare(b []byte, seq uint64) error {
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(w[:], word(seq, i))
		part := b[i:min(i+8, len(b))]
		if bytes.Equal(part, w[:len(part)]) {
			continue
		}
		for j := range part {
			if part[j] != w[j] {
				m := &mismatch{Seq: seq, Offset: i + j, Want: w[j], Got: part[j], Came: seq}
				if len(b) >= 8 {
					m.Came = binary.LittleEndian.Uint64(b)
				}
				return m
			}
		}
	}
	return nil
}
