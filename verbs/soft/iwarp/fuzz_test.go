package iwarp

import (
	"bytes"
	"testing"
)

// FuzzMPA: what parses encodes to the same bytes, but for reserved bits.
func FuzzMPA(f *testing.F) {
	for _, v := range startups {
		f.Add(unhex(f, v.hex), v.m.Reply)
	}
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		m, err := ParseMPA(b, reply)
		if err != nil {
			return
		}
		again, err := ParseMPA(m.Append(nil), reply)
		if err != nil || !sameMPA(m, again) {
			t.Fatalf("%x: %+v became %+v, %v", b, m, again, err)
		}
	})
}

// FuzzFrame: a header that parses encodes to the same bytes, but for reserved
// bits; lengths never leave the frame.
func FuzzFrame(f *testing.F) {
	for _, v := range frames {
		f.Add(unhex(f, v.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		err := ParseHeader(b, &h)
		if err == ErrShort {
			return
		}
		if h.Payload() < 0 || h.Len() > len(b) || FPDUSize(h.ULPDU) < h.Len()+h.Payload()+CRCLen {
			t.Fatalf("%x: %+v", b, h)
		}
		if err != nil {
			return
		}
		var enc [UntaggedLen]byte
		n := h.Put(enc[:])
		want := append([]byte(nil), b[:n]...)
		want[2] &= ctlTagged | ctlLast | ctlDVMask
		want[3] &= rdmapVMask | rdmapOpMask
		if !bytes.Equal(enc[:n], want) {
			t.Fatalf("%x became %x", b[:n], enc[:n])
		}
	})
}

func FuzzTerminate(f *testing.F) {
	for _, s := range []string{
		"1202c000 0022 4143 00000000 00000000 00000002 00000000",
		"20020000", "21020300 0022 4143 00000000 00000000 00000002 00000000", "02020000",
		"0100e000 002e 4141 00000000 00000001 00000001 00000000 00000000 0000000000000000 00000010 00000001 0000000000000000",
		"1100c000 001b c140 0055aa00 0000000000010040",
	} {
		f.Add(unhex(f, s), false)
		f.Add(unhex(f, s), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, siw bool) {
		m, err := ParseTerminate(b, siw)
		if err != nil {
			return
		}
		enc := make([]byte, MaxTerminate)
		enc = enc[:m.Put(enc)]
		again, err := ParseTerminate(enc, false)
		again.SIW = m.SIW
		if m.Code.Layer() == 0 && m.Code.Type() == TypeOperation && !m.HasDDP {
			return // without flags it may read as siw's form of something else
		}
		if err != nil || again != m {
			t.Fatalf("%x: %+v became %+v, %v", b, m, again, err)
		}
	})
}

// FuzzFeatures: a trailer that parses encodes to one that reads the same, and
// what is before it is the consumer's, untouched.
func FuzzFeatures(f *testing.F) {
	x := Features{Immediate: true, RNRRetry: 7, Reserve: 2, ParkMsgs: 16, ParkKiB: 1024}
	f.Add([]byte("hello"))
	f.Add(x.Append([]byte("hello")))
	f.Add(x.Append(nil)[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		mine, x, ok := SplitFeatures(b)
		if !ok {
			if !bytes.Equal(mine, b) {
				t.Fatalf("%x became %x", b, mine)
			}
			return
		}
		again, y, ok := SplitFeatures(x.Append(append([]byte(nil), mine...)))
		if !ok || x != y || !bytes.Equal(again, mine) || len(mine) != len(b)-FeaturesLen {
			t.Fatalf("%x: %+v became %+v", b, x, y)
		}
	})
}
