package vmlab

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// fpduCount counts soft's FPDUs as they arrived at the machine.
type fpduCount struct {
	all int
	bad int // with a wrong CRC
	cut int // with a TCP segment that ends inside padding and CRC
}

// fpdusToGuest reads a capture of the machine's network card, and counts the FPDUs of streams to
// the guest.
func fpdusToGuest(t *testing.T, capture string) (n fpduCount) {
	t.Helper()
	raw, err := os.ReadFile(capture)
	if err != nil {
		t.Fatal(err)
	}
	guest := netip.MustParseAddr(toGuest).AsSlice()
	streams := map[[4]byte]*mpaStream{}
	for raw = raw[24:]; len(raw) >= 16; {
		size := binary.LittleEndian.Uint32(raw[8:])
		frame := raw[16 : 16+size]
		raw = raw[16+size:]
		const ip = 14
		if len(frame) < ip+40 || frame[12] != 8 || frame[13] != 0 || frame[ip+9] != 6 || string(frame[ip+16:ip+20]) != string(guest) {
			continue
		}
		tcp := frame[ip+int(frame[ip]&15)*4 : ip+int(binary.BigEndian.Uint16(frame[ip+2:]))]
		ports := [4]byte(tcp)
		if streams[ports] == nil || tcp[13]&2 != 0 { // SYN
			streams[ports] = &mpaStream{next: binary.BigEndian.Uint32(tcp[4:]) + 1}
		}
		streams[ports].segment(binary.BigEndian.Uint32(tcp[4:]), tcp[tcp[12]>>4*4:])
	}
	for _, s := range streams {
		s.count(&n)
	}
	return n
}

// mpaStream is one direction of a TCP connection.
type mpaStream struct {
	next uint32
	data []byte
	ends []int // of TCP segments
}

// segment adds the next segment. The machine's network loses none.
func (s *mpaStream) segment(seq uint32, b []byte) {
	if old := s.next - seq; old < uint32(len(b)) {
		s.data = append(s.data, b[old:]...)
		s.next = seq + uint32(len(b))
		s.ends = append(s.ends, len(s.data))
	}
}

// count counts the FPDUs, if the stream has any.
func (s *mpaStream) count(n *fpduCount) {
	const start, crcLen = 20, 4 // of MPA's frame without private data
	if len(s.data) < start || string(s.data[:6]) != "MPA ID" {
		return
	}
	for at := start + int(binary.BigEndian.Uint16(s.data[18:])); at+2 <= len(s.data); {
		end := at + 2 + int(binary.BigEndian.Uint16(s.data[at:]))
		crc := at + (end-at+3)&^3
		if crc+crcLen > len(s.data) {
			return
		}
		n.all++
		if !iwarp.CheckCRC(s.data[at : crc+crcLen]) {
			n.bad++
		}
		for len(s.ends) > 0 && s.ends[0] <= end {
			s.ends = s.ends[1:]
		}
		if len(s.ends) > 0 && s.ends[0] < crc+crcLen {
			n.cut++
		}
		at = crc + crcLen
	}
}
