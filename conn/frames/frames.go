// Package frames is the format of a run: consecutive datagrams of one socket to one
// destination that are kept and sent as one piece of memory. Each datagram is a frame:
// its length in 4 bytes, little-endian, then its payload, then 0 to 3 bytes of padding to
// a multiple of 4. Frames follow one another without a gap.
//
// A run is no longer than MaxLen bytes. How many datagrams it has travels outside of it.
//
// The functions keep no state, allocate nothing, and never look beyond the memory they
// are given, whatever is in it.
//
// Not covered by docs/stability.md: any release may change this package.
package frames

import "encoding/binary"

const (
	// MaxLen is the most bytes that a run may have, so that the time which its
	// receiver takes to check it is bounded.
	MaxLen = 64 << 10
	// Head is the length of a frame with an empty payload, which is the shortest.
	Head = 4

	align = 4
)

// Size is the length of the frame of a payload of n bytes, padding included.
func Size(n int) int { return (Head + n + align - 1) &^ (align - 1) }

// Put writes the frame of p at the start of b and returns its length. It panics if b is
// shorter than Size(len(p)). The padding is 0: what b had before is nobody else's business.
func Put(b, p []byte) int {
	n := Size(len(p))
	b = b[:n]
	binary.LittleEndian.PutUint32(b[n-Head:], 0) // the padding, and what comes before it
	binary.LittleEndian.PutUint32(b, uint32(len(p)))
	copy(b[Head:], p)
	return n
}

// Next returns the payload of the frame at the start of b, and what follows the frame.
// ok is false if b does not begin with a whole frame.
//
// The length is read once. So payload lies within b even if somebody writes to b at the
// same time.
func Next(b []byte) (payload, rest []byte, ok bool) {
	if len(b) < Head {
		return nil, nil, false
	}
	n := uint(binary.LittleEndian.Uint32(b))
	size := (n + Head + align - 1) &^ (align - 1)
	if size > uint(len(b)) {
		return nil, nil, false
	}
	return b[Head : Head+n : Head+n], b[size:], true
}

// Sum is what a run holds: at the sender what its client said when the run was taken, at
// the receiver what the daemon has found.
type Sum struct {
	Datagrams int
	NonEmpty  int // datagrams with a payload
	Bytes     int // of payload
}

// Plus is s and x together.
func (s Sum) Plus(x Sum) Sum {
	return Sum{s.Datagrams + x.Datagrams, s.NonEmpty + x.NonEmpty, s.Bytes + x.Bytes}
}

// Minus is s without x, which is part of it.
func (s Sum) Minus(x Sum) Sum {
	return Sum{s.Datagrams - x.Datagrams, s.NonEmpty - x.NonEmpty, s.Bytes - x.Bytes}
}

// Check reports whether b consists of n frames and nothing else, and what they hold. n is
// at least 1. Nobody may write to b meanwhile.
func Check(b []byte, n int) (s Sum, ok bool) {
	if len(b) > MaxLen || n < 1 || n > len(b)/Head {
		return Sum{}, false
	}
	off, bytes, empty := uint(0), uint(0), 0
	for range n {
		if uint(len(b))-off < Head {
			return Sum{}, false
		}
		k := uint(binary.LittleEndian.Uint32(b[off:]))
		size := (k + Head + align - 1) &^ (align - 1)
		if size > uint(len(b))-off {
			return Sum{}, false
		}
		if k == 0 {
			empty++
		}
		bytes += k
		off += size
	}
	return Sum{n, n - empty, int(bytes)}, off == uint(len(b))
}
