package proto

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Payload returns n bytes of the pattern that follows the header in a message.
func Payload(n int) []byte {
	b := make([]byte, n)
	k := 11
	for i := range b {
		b[i] = byte(k)
		// 41·(k+3) runs through all 256 values. The other term shifts every block of 256 bytes,
		// so that exchanged blocks are found.
		k = (41*(k+3) + (i+1)>>8) & 0xff
	}
	return b
}

// Mismatch says where data is wrong.
type Mismatch struct {
	What      string // "payload", "RDMA buffer"
	Offset    int    // of the first wrong byte or word
	Want, Got uint64
	Wrong     int // number of wrong bytes or words
	Of        int
	Words     bool
}

func (m *Mismatch) Error() string {
	unit := "bytes"
	if m.Words {
		unit = "words of 8 bytes"
	}
	return fmt.Sprintf("the %s is corrupt at offset %d: want %#x, got %#x; %d of %d %s are wrong", m.What, m.Offset, m.Want, m.Got, m.Wrong, m.Of, unit)
}

// ComparePayload returns a *Mismatch unless pattern begins with got.
func ComparePayload(got, pattern []byte) error {
	if bytes.HasPrefix(pattern, got) {
		return nil
	}
	m := &Mismatch{What: "payload", Offset: -1, Of: len(got)}
	for i, b := range got {
		var want byte
		if i < len(pattern) {
			want = pattern[i]
		}
		if b == want && i < len(pattern) {
			continue
		}
		if m.Wrong++; m.Wrong == 1 {
			m.Offset, m.Want, m.Got = i, uint64(want), uint64(b)
		}
	}
	return m
}

// Fill fills the whole words of b with pattern.
func Fill(b []byte, pattern uint64) {
	for ; len(b) >= 8; b = b[8:] {
		binary.NativeEndian.PutUint64(b, pattern)
	}
}

// Compare returns a *Mismatch unless every whole word of b is pattern.
func Compare(b []byte, pattern uint64) error {
	var m *Mismatch
	for i := 0; i+8 <= len(b); i += 8 {
		got := binary.NativeEndian.Uint64(b[i:])
		if got == pattern {
			continue
		}
		if m == nil {
			m = &Mismatch{What: "RDMA buffer", Offset: i, Want: pattern, Got: got, Of: len(b) / 8, Words: true}
		}
		m.Wrong++
	}
	if m == nil {
		return nil
	}
	return m
}
