package proto

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Fill makes b message seq: its number, and words that depend on number and
// place. The last bytes beyond a multiple of 8 are the beginning of a word.
func Fill(b []byte, seq uint64) {
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

// Mismatch is where data was not what it should be.
type Mismatch struct {
	Seq       uint64 // that was expected
	Offset    int    // of the first wrong byte
	Want, Got byte
	// Came is the number that the message itself has.
	Came uint64
}

func (m *Mismatch) Error() string {
	if m.Offset < 8 && m.Came != m.Seq {
		what := "lost before it"
		if m.Came < m.Seq {
			what = "out of order or twice"
		}
		return fmt.Sprintf("message %d came where %d was expected (%s): at offset %d want %#x, got %#x", m.Came, m.Seq, what, m.Offset, m.Want, m.Got)
	}
	return fmt.Sprintf("message %d is corrupt at offset %d: want %#x, got %#x", m.Seq, m.Offset, m.Want, m.Got)
}

// Check returns a *Mismatch unless b is message seq.
func Check(b []byte, seq uint64) error {
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(w[:], word(seq, i))
		part := b[i:min(i+8, len(b))]
		if bytes.Equal(part, w[:len(part)]) {
			continue
		}
		for j := range part {
			if part[j] != w[j] {
				m := &Mismatch{Seq: seq, Offset: i + j, Want: w[j], Got: part[j], Came: seq}
				if len(b) >= 8 {
					m.Came = binary.LittleEndian.Uint64(b)
				}
				return m
			}
		}
	}
	return nil
}
