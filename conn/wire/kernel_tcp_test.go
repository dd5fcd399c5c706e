package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// What two Linux hosts sent each other over RDS/TCP must parse and encode to the
// same bytes.
func TestKernelTCPFrames(t *testing.T) {
	text, err := os.ReadFile("testdata/kernel-tcp.txt")
	if err != nil {
		t.Fatal(err)
	}
	n, last := map[string]int{}, map[string]uint64{}
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] == "#" {
			continue
		}
		raw, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		var h Header
		if err := ParseTCP(raw, &h); err != nil {
			t.Errorf("%x: %v", raw, err)
			continue
		}
		out := make([]byte, HeaderLen)
		if h.PutTCP(out); !bytes.Equal(out, raw) {
			t.Errorf("%x encodes to %x", raw, out)
		}
		kind := "data"
		switch {
		case h.Flags == FlagCong && h.Len == CongLen && h.Seq == 0:
			kind = "cong"
		case h.IsProbe():
			kind = "probe"
		case h.IsProbeAnswer():
			kind = "answer"
		case h.DPort == 0:
			kind = "ping"
		case h.SPort == 0:
			kind = "pong"
		}
		n[kind]++
		if x := h.Handshake(); (kind == "probe" || kind == "answer") != (x == Handshake{Paths: 8}) {
			t.Errorf("%s %x: %+v", kind, raw, x)
		}
		if lane := f[0] + f[1]; kind != "cong" { // every lane counts from 1
			if last[lane]++; h.Seq != last[lane] {
				t.Errorf("%s %x: sequence %d, want %d", lane, raw, h.Seq, last[lane])
			}
		}
	}
	for _, kind := range []string{"cong", "probe", "answer", "ping", "pong", "data"} {
		if n[kind] == 0 {
			t.Errorf("no %s in the file: %v", kind, n)
		}
	}
}

// Our handshake is a kernel's, and one more header whose data an old kernel takes
// for the end.
func TestHandshake(t *testing.T) {
	for _, x := range []Handshake{{}, {Paths: 8}, {Paths: 8, BySPort: true}, {Paths: 65535, BySPort: true}} {
		var h Header
		h.SetHandshake(x)
		if got := h.Handshake(); got != x {
			t.Errorf("%+v comes back as %+v", x, got)
		}
	}
	var h Header
	h.SetHandshake(Handshake{Paths: 8, BySPort: true})
	if want := [ExtLen]byte{5, 0, 8, 8, 0}; h.Ext != want {
		t.Errorf("%x, want %x", h.Ext, want)
	}
	h.Ext = [ExtLen]byte{6, 1, 2, 3, 4, 5, 0, 2, 8, 0}
	if got := h.Handshake(); got != (Handshake{Paths: 2, Gen: 0x01020304, BySPort: true}) {
		t.Errorf("%+v", got)
	}
}
