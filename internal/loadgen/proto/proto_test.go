package proto

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestGolden(t *testing.T) {
	for _, tc := range []struct {
		m    any
		want string
	}{
		{&Hello{Mode: RDMARead, Verify: true, Sockets: 2, Size: 4096, Depth: 8, Sample: 64}, "7264736200010100" + "0301" + "0002" + "00001000" + "00000008" + "00000040"},
		{&Welcome{Cookie: 0x1122334455667788, Ports: []uint16{1, 0x1234}}, "7264736200010200" + "1122334455667788" + "0002" + "0001" + "1234"},
		{&Refuse{Code: Busy, Text: "no"}, "7264736200010300" + "0001" + "0002" + "6e6f"},
		{&Mark{}, "7264736200010400"},
		{&Alive{}, "7264736200010500"},
		{&Bye{Sent: 7}, "7264736200010600" + "0000000000000007"},
		{&Final{Received: 7, CPU: time.Second, DaemonCPU: -1, Wrong: "x"}, "7264736200010700" + "0000000000000007" + "000000003b9aca00" + "ffffffffffffffff" + "0001" + "78"},
	} {
		b := Append(nil, tc.m)
		if hex.EncodeToString(b) != tc.want {
			t.Errorf("%T:\ngot  %x\nwant %s", tc.m, b, tc.want)
		}
		if back, err := Parse(b); err != nil || !reflect.DeepEqual(back, tc.m) {
			t.Errorf("%T: %+v, %v", tc.m, back, err)
		}
		for n := range b {
			if _, err := Parse(b[:n]); !errors.Is(err, ErrMessage) {
				t.Errorf("%T cut to %d bytes: %v", tc.m, n, err)
			}
		}
		if _, err := Parse(append(b, 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("%T with a byte more: %v", tc.m, err)
		}
		b[5] = 9
		var v *VersionError
		if _, err := Parse(b); !errors.As(err, &v) || v.Theirs != 9 {
			t.Errorf("%T of another version: %v", tc.m, err)
		}
	}
	long := Append(nil, &Refuse{Text: strings.Repeat("x", 5000)})
	if _, err := Parse(long); err != nil || len(long) > MaxMessage {
		t.Errorf("%d bytes, %v", len(long), err)
	}
}

func TestLimits(t *testing.T) {
	good := Hello{Mode: Rate, Sockets: 1, Size: 64, Depth: 1, Sample: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(h *Hello){
		"mode 9":            func(h *Hello) { h.Mode = 9 },
		"0 sockets":         func(h *Hello) { h.Sockets = 0 },
		"257 sockets":       func(h *Hello) { h.Sockets = 257 },
		"0 outstanding":     func(h *Hello) { h.Depth = 0 },
		"4097 outstanding":  func(h *Hello) { h.Depth = 4097 },
		"1048577 bytes":     func(h *Hello) { h.Size = 1<<20 + 1 },
		"too few to verify": func(h *Hello) { h.Verify, h.Size = true, 15 },
		"of no bytes":       func(h *Hello) { h.Mode, h.Size = RDMARead, 0 },
		"every 0 messages":  func(h *Hello) { h.Sample = 0 },
		"than 1073741824":   func(h *Hello) { h.Sockets, h.Depth, h.Size = 256, 4096, 1<<20 },
	} {
		h := good
		change(&h)
		if err := h.Check(); !errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, n := range []int{0, 3, 8, 16, 21, 4096} {
		b := make([]byte, n)
		Fill(b, 7)
		if err := Check(b, 7); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		for i := range b {
			b[i] ^= 1
			var m *Mismatch
			if err := Check(b, 7); !errors.As(err, &m) || m.Offset != i || m.Want != b[i]^1 || m.Got != b[i] {
				t.Fatalf("%d bytes, byte %d: %v", n, i, err)
			}
			b[i] ^= 1
		}
	}
	b := make([]byte, 64)
	Fill(b, 9)
	for seq, want := range map[uint64]string{7: "message 9 came where 7 was expected (lost before it)", 12: "message 9 came where 12 was expected (out of order or twice)"} {
		if err := Check(b, seq); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	c := make([]byte, 64)
	Fill(c, 10)
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

func FuzzParse(f *testing.F) {
	for _, m := range []any{&Hello{Mode: RTT, Sockets: 1}, &Welcome{Ports: []uint16{5}}, &Refuse{Text: "x"}, &Mark{}, &Bye{}, &Final{Wrong: "y"}} {
		f.Add(Append(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, m))
		if _, cut := m.(*Refuse); cut || err != nil {
			return // long texts are cut
		}
		if f, ok := m.(*Final); ok && len(f.Wrong) > MaxMessage/2 {
			return
		}
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}
