package iwarp

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// TestCapture decodes a capture of Linux siw talking to itself and encodes
// each frame again: the bytes must be the same.
func TestCapture(t *testing.T) {
	count := map[uint8]int{}
	mpa, streams := 0, readStreams(t, "testdata/siw.pcap")
	for _, s := range streams {
		n := 0
		for _, reply := range []bool{false, true} {
			l, err := MPALen(s, reply)
			if err != nil {
				continue
			}
			m, err := ParseMPA(s[:l], reply)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Append(nil); !bytes.Equal(got, s[:l]) {
				t.Errorf("start-up frame %x became %x", s[:l], got)
			}
			n = l
			mpa++
		}
		if n == 0 {
			continue // not iWARP
		}
		for s = s[n:]; len(s) > 0; {
			var h Header
			size := FPDUSize(ULPDULen(s))
			if len(s) < size {
				t.Fatalf("%d bytes left of a frame of %d", len(s), size)
			}
			if err := ParseHeader(s, &h); err != nil {
				t.Fatalf("%x: %v", s[:min(len(s), 32)], err)
			}
			got := make([]byte, size)
			k := h.Put(got)
			if h.Op == OpReadRequest {
				var r ReadRequest
				r.Parse(s[k:])
				r.Put(got[k:])
			} else {
				copy(got[k:], s[k:k+h.Payload()])
			}
			Seal(got, false) // CRC off: siw writes 0
			// siw does not clear the pad of some frames.
			copy(got[k+h.Payload():], s[k+h.Payload():size-CRCLen])
			if !bytes.Equal(got, s[:size]) {
				t.Fatalf("frame %v: %x became %x", &h, s[:k+4], got[:k+4])
			}
			count[h.Op]++
			s = s[size:]
		}
	}
	t.Log("frames by opcode:", count, "start-up frames:", mpa)
	for _, op := range []uint8{OpWrite, OpReadRequest, OpReadResponse, OpSend} {
		if count[op] == 0 {
			t.Errorf("no frame with opcode %d", op)
		}
	}
	if mpa < 4 || mpa%2 != 0 {
		t.Errorf("%d start-up frames", mpa)
	}
}

// readStreams reassembles the TCP streams of a little-endian Ethernet pcap, one
// per direction. It relies on the capture having no loss and no reordering, and
// drops retransmitted bytes.
func readStreams(t *testing.T, name string) [][]byte {
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	le, be := binary.LittleEndian, binary.BigEndian
	type stream struct {
		data []byte
		next uint32
	}
	var order []*stream
	byFlow := map[[12]byte]*stream{}
	for b = b[24:]; len(b) > 0; {
		n := int(le.Uint32(b[8:]))
		p := b[16 : 16+n]
		b = b[16+n:]
		if be.Uint16(p[12:]) != 0x0800 || p[23] != 6 {
			continue
		}
		ip := p[14:]
		ip = ip[:be.Uint16(ip[2:])]
		tcp := ip[int(ip[0]&15)*4:]
		data := tcp[int(tcp[12]>>4)*4:]
		seq := be.Uint32(tcp[4:])
		var flow [12]byte
		copy(flow[:], ip[12:20])
		copy(flow[8:], tcp[:4])
		s := byFlow[flow]
		if tcp[13]&2 != 0 { // SYN
			s = &stream{next: seq + 1}
			byFlow[flow] = s
			order = append(order, s)
			continue
		}
		if s == nil || len(data) == 0 {
			continue
		}
		if skip := int32(s.next - seq); skip > 0 {
			data = data[min(int(skip), len(data)):]
		} else if skip < 0 {
			t.Fatalf("gap of %d bytes", -skip)
		}
		s.data = append(s.data, data...)
		s.next += uint32(len(data))
	}
	var out [][]byte
	for _, s := range order {
		out = append(out, s.data)
	}
	return out
}
