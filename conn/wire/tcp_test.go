package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestTCPHeader(t *testing.T) {
	h := Header{Seq: 1<<40 + 2, Ack: 3, Len: 4, SPort: 5, DPort: 6, Flags: FlagAckRequired | FlagRetransmitted, Credit: 7}
	h.SetExtRDMA(0x01020304)
	b := make([]byte, HeaderLen)
	h.PutTCP(b)
	want := []byte{0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 5, 0, 6, 4, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 3, 4}
	if !bytes.Equal(b, append(want, make([]byte, HeaderLen-len(want))...)) {
		t.Errorf("encoded %x", b)
	}
	b[8], b[24], b[25], b[30] = 1, b[24]|2, 9, 0xee // what is to be ignored
	saved := bytes.Clone(b)
	var got Header
	if err := ParseTCP(b, &got); err != nil || got.Seq != h.Seq || got.Ack != 0 || got.Credit != 0 || got.Flags != FlagRetransmitted || got.Ext != h.Ext {
		t.Errorf("parsed %+v, %v", got, err)
	}
	if !bytes.Equal(b, saved) {
		t.Error("ParseTCP changed its input")
	}
	if err := ParseTCP(b[:47], &got); !errors.Is(err, ErrShort) {
		t.Errorf("47 bytes: %v", err)
	}
}

func TestPaths(t *testing.T) {
	for offered, want := range map[uint16]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 7: 4, 8: 8, 9: 8, 16: 8, 65535: 8} {
		var h Header
		if h.SetExtPaths(offered); h.Paths() != want {
			t.Errorf("%d offered: %d, want %d", offered, h.Paths(), want)
		}
	}
	for _, c := range []struct {
		what string
		ext  [ExtLen]byte
		want int
	}{
		{"none", [ExtLen]byte{}, 1},
		{"behind another", [ExtLen]byte{2, 0, 0, 0, 1, 5, 0, 4}, 4},
		{"behind the end", [ExtLen]byte{0, 5, 0, 4}, 1},
		{"behind an overrun", [ExtLen]byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 5}, 1},
	} {
		h := Header{Ext: c.ext}
		if h.Paths() != c.want {
			t.Errorf("%s: %d, want %d", c.what, h.Paths(), c.want)
		}
	}
}

func TestAnswer(t *testing.T) {
	var h Header
	h.Answer(&Header{SPort: 1, Len: 9}, 5)
	if h.SPort != 0 || h.DPort != 1 || h.Len != 0 || h.Seq != 5 || h.Paths() != MaxPaths {
		t.Errorf("to a probe: %+v", h)
	}
	h.Answer(&Header{SPort: 7, Len: 9}, 6)
	if h.SPort != 0 || h.DPort != 7 || h.Ext != [ExtLen]byte{} {
		t.Errorf("to a ping: %+v", h)
	}
}

func FuzzParseTCP(f *testing.F) {
	b := make([]byte, HeaderLen)
	h := Header{Seq: 1, SPort: 1}
	h.SetExtPaths(8)
	h.PutTCP(b)
	f.Add(b)
	f.Add(bytes.Repeat([]byte{0xff}, HeaderLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Header
		if ParseTCP(b, &h) != nil {
			return
		}
		if n := h.Paths(); n < 1 || n > MaxPaths || n&(n-1) != 0 {
			t.Errorf("%d paths", n)
		}
		out := make([]byte, HeaderLen)
		h.PutTCP(out)
		if err := ParseTCP(out, &again); err != nil || again != h {
			t.Errorf("%+v comes back as %+v, %v", h, again, err)
		}
	})
}
