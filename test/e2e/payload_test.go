package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A numbered datagram has a magic number, a checksum of all that follows, its length, its
// number, and bytes that depend on the number.
const (
	payloadMagic = 0x52445345
	minPayload   = 24
)

var errPayload = errors.New("damaged payload")

// fillPayload makes b the datagram number n. b has at least minPayload bytes.
func fillPayload(b []byte, n uint64) []byte {
	le := binary.LittleEndian
	fillPattern(b[minPayload:], n)
	le.PutUint64(b[16:], n)
	le.PutUint64(b[8:], uint64(len(b)))
	le.PutUint32(b, payloadMagic)
	le.PutUint32(b[4:], crc32.ChecksumIEEE(b[8:]))
	return b
}

// parsePayload returns the number of a datagram, or an error if it is damaged.
func parsePayload(b []byte) (uint64, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < minPayload:
		return 0, fmt.Errorf("%w: %d bytes", errPayload, len(b))
	case le.Uint32(b) != payloadMagic, le.Uint64(b[8:]) != uint64(len(b)):
		return 0, fmt.Errorf("%w: magic %#x, length %d of %d", errPayload, le.Uint32(b), le.Uint64(b[8:]), len(b))
	case le.Uint32(b[4:]) != crc32.ChecksumIEEE(b[8:]):
		return 0, fmt.Errorf("%w: checksum of number %d", errPayload, le.Uint64(b[16:]))
	}
	return le.Uint64(b[16:]), nil
}

// fillPattern fills b with bytes that depend on seed.
func fillPattern(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 0x1234567
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	for ; i < len(b); i++ {
		b[i] = byte(x >> (i % 8 * 8))
	}
}

// checkPattern returns an error that names the first byte of b that is wrong.
func checkPattern(b []byte, seed uint64) error {
	want := make([]byte, len(b))
	fillPattern(want, seed)
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %#x, want %#x of pattern %d", i, len(b), b[i], want[i], seed)
		}
	}
	return nil
}
