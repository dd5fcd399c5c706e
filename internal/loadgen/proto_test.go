package loadgen

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	good := hello{Version: protocol, Mode: Rate, Sockets: 1, Size: 64, Depth: 1, Sample: 1}
	if err := good.check(protocol); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(h *hello){
		"mode 9":            func(h *hello) { h.Mode = 9 },
		"0 sockets":         func(h *hello) { h.Sockets = 0 },
		"257 sockets":       func(h *hello) { h.Sockets = 257 },
		"0 outstanding":     func(h *hello) { h.Depth = 0 },
		"4097 outstanding":  func(h *hello) { h.Depth = 4097 },
		"1048577 bytes":     func(h *hello) { h.Size = 1<<20 + 1 },
		"too few to verify": func(h *hello) { h.Verify, h.Size = true, 15 },
		"of no bytes":       func(h *hello) { h.Mode, h.Size = RDMARead, 0 },
		"every 0 messages":  func(h *hello) { h.Sample = 0 },
		"than 1073741824":   func(h *hello) { h.Sockets, h.Depth, h.Size = 256, 4096, 1<<20 },
	} {
		h := good
		change(&h)
		if err := h.check(protocol); !errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestMessagePattern(t *testing.T) {
	for _, n := range []int{0, 3, 8, 16, 21, 4096} {
		b := make([]byte, n)
		fill(b, 7)
		if err := compare(b, 7); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		for i := range b {
			b[i] ^= 1
			var m *mismatch
			if err := compare(b, 7); !errors.As(err, &m) || m.Offset != i || m.Want != b[i]^1 || m.Got != b[i] {
				t.Fatalf("%d bytes, byte %d: %v", n, i, err)
			}
			b[i] ^= 1
		}
	}
	b := make([]byte, 64)
	fill(b, 9)
	for seq, want := range map[uint64]string{7: "message 9 came where 7 was expected (lost before it)", 12: "message 9 came where 12 was expected (out of order or twice)"} {
		if err := compare(b, seq); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	c := make([]byte, 64)
	fill(c, 10)
	if bytes.Equal(b[8:16], c[8:16]) || bytes.Equal(b[8:16], b[16:24]) {
		t.Error("the pattern repeats")
	}
}

func TestModes(t *testing.T) {
	for m, name := range modes {
		if got, err := ParseMode(name); err != nil || got != m || m.String() != name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ParseMode("x"); err == nil {
		t.Error("x is a mode")
	}
}
