package wire

import (
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// What Linux kernels send must parse, checksums included, and encode to the
// same bytes.
func TestKernelFrames(t *testing.T) {
	text, err := os.ReadFile("testdata/kernel-ib.txt")
	if err != nil {
		t.Fatal(err)
	}
	a, b := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	n := map[string]int{}
	for line := range strings.SplitSeq(string(text), "\n") {
		kind, data, ok := strings.Cut(line, " ")
		if !ok || kind == "#" {
			continue
		}
		raw, err := hex.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		n[kind]++
		if kind == "send" {
			var h Header
			if raw[30] == 0 && raw[31] == 0 {
				t.Errorf("%x: no checksum to check", raw)
			}
			if err := Parse(raw, &h); err != nil {
				t.Errorf("%x: %v", raw, err)
				continue
			}
			var out [HeaderLen]byte
			if h.Put(out[:]); hex.EncodeToString(out[:]) != data {
				t.Errorf("%x encodes to %x", raw, out)
			}
			switch {
			case h.Flags == FlagCong && h.Len == CongLen && h.Seq == 0:
				n["cong"]++
			case h.IsAck(HeaderLen):
				n["ack"]++
			case h.DPort == 0:
				n["ping"]++
			}
			was := h
			h.FromKernel()
			switch x := h.Exts(); {
			case h.Ext != was.Ext || h.SrcInc|h.DstInc != 0 || h.Flags != was.Flags&(FlagAckRequired|FlagRetransmitted):
				t.Errorf("%x: a host is given %+v", raw, h)
			case x.HasDest:
				n["cookie"]++
			case x.RDMA == 1:
				n["operation"]++
			}
			continue
		}
		p, err := ParsePrivate(raw, false)
		if err != nil || p.Major != 3 || p.Minor != 1 || p.MinorMask != MinorMask || p.Ext != 0 ||
			!(p.Src == a && p.Dst == b || p.Src == b && p.Dst == a) {
			t.Errorf("%s %x: %+v, %v", kind, raw, p, err)
		}
	}
	for _, kind := range []string{"send", "req", "rep", "cong", "ack", "ping", "cookie", "operation"} {
		if n[kind] == 0 {
			t.Errorf("no %s in the file: %v", kind, n)
		}
	}
}
