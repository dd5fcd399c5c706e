package iwarp

import "encoding/binary"

// Markers (RFC 5044 section 4.3): every 512 bytes of the stream of FPDUs, the
// first before the first FPDU, four bytes that point back to where the FPDU
// around them begins.
const (
	MarkerLen      = 4
	markerInterval = 512
)

// Marker inserts markers into one direction of a stream, whose position it
// keeps. The zero value is the beginning of the stream.
type Marker struct{ pos int }

// MaxSize bounds the size of an FPDU of n bytes with its markers.
func (*Marker) MaxSize(n int) int { return n + MarkerLen*(n/(markerInterval-MarkerLen)+2) }

// Put writes the FPDU f, complete but for its CRC, with the markers in it and
// the CRC over all of that (0 without crc) to dst, which must have MaxSize. It
// returns the length.
func (m *Marker) Put(dst, f []byte, crc bool) int {
	body := f[:len(f)-CRCLen]
	n, start := 0, 0
	for first := true; len(body) > 0; first = false {
		if m.pos == 0 {
			ptr := n - start
			if first {
				ptr, start = 0, MarkerLen // between two FPDUs: it belongs to this one
			}
			binary.BigEndian.PutUint32(dst[n:], uint32(ptr))
			n += MarkerLen
			m.pos = MarkerLen
		}
		k := min(len(body), markerInterval-m.pos)
		n += copy(dst[n:], body[:k])
		body = body[k:]
		m.pos = (m.pos + k) % markerInterval
	}
	if m.pos == 0 { // directly behind the pad: it belongs to this FPDU
		binary.BigEndian.PutUint32(dst[n:], uint32(n-start))
		n += MarkerLen
		m.pos = MarkerLen
	}
	var c uint32
	if crc {
		c = CRC(0, dst[:n])
	}
	PutCRC(dst[n:], c)
	m.pos = (m.pos + CRCLen) % markerInterval
	return n + CRCLen
}

// MULPDU returns the length of the longest ULPDU whose FPDU fits into a TCP segment
// of mss bytes. It is at least 128, which RFC 5044 section 4.1 guarantees.
func MULPDU(mss int, markers bool) int {
	n := mss - (LenField + CRCLen + mss%4)
	if markers {
		n -= MarkerLen * ((mss + markerInterval - 1) / markerInterval)
	}
	return min(max(n, 128), MaxSendULPDU)
}
