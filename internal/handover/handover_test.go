package handover

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// sample writes one of everything.
func sample(version uint16) []byte {
	w := NewWriter(version)
	w.Begin(TagTests)
	w.U8(0x11)
	w.U16(0x2233)
	w.U32(0x44556677)
	w.U64(0x8899aabbccddeeff)
	w.I64(-2)
	w.Int(5)
	w.Bool(true)
	w.Bool(false)
	w.Begin(TagTests + 1)
	w.Blob([]byte("blob"))
	w.String("text")
	w.End()
	w.Count(2)
	w.Addr(netip.MustParseAddr("10.1.2.3"))
	w.Addr(netip.MustParseAddr("fd00::7"))
	w.Addr(netip.Addr{})
	w.Range(Range{3, 4096, 1 << 20})
	w.Range(Range{File: NoFile})
	w.End()
	w.Begin(TagTests + 2)
	w.End()
	return w.Bytes()
}

// read reads what sample writes, and reports what it was.
func read(t *testing.T, r *Reader) {
	check := func(what string, ok bool) {
		if !ok && r.Err() == nil {
			t.Errorf("%s is another", what)
		}
	}
	r.Begin(TagTests)
	check("u8", r.U8() == 0x11)
	check("u16", r.U16() == 0x2233)
	check("u32", r.U32() == 0x44556677)
	check("u64", r.U64() == 0x8899aabbccddeeff)
	check("i64", r.I64() == -2)
	check("int", r.Int(5) == 5)
	check("true", r.Bool())
	check("false", !r.Bool())
	r.Begin(TagTests + 1)
	check("blob", string(r.Blob(4)) == "blob")
	check("text", r.String(100) == "text")
	r.End()
	check("list", r.Count(2, 4) == 2)
	check("IPv4", r.Addr() == netip.MustParseAddr("10.1.2.3"))
	check("IPv6", r.Addr() == netip.MustParseAddr("fd00::7"))
	check("no address", !r.Addr().IsValid())
	check("range", r.Range(4) == Range{3, 4096, 1 << 20})
	check("no range", r.Range(0) == Range{File: NoFile})
	r.End()
	r.Begin(TagTests + 2)
	r.End()
}

// TestGolden: the bytes of a state do not change within a version. Each version that there is
// can be written and read.
func TestGolden(t *testing.T) {
	for v := Oldest; v <= Newest; v++ {
		want, err := os.ReadFile(fmt.Sprintf("testdata/sample.%d.hex", v))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := sample(v); !bytes.Equal(got, golden) {
			t.Errorf("version %d, written:\n%x\nthe golden bytes are\n%x", v, got, golden)
		}
		r, err := NewReader(golden)
		if err != nil {
			t.Fatal(err)
		}
		if r.Version() != v {
			t.Errorf("version %d says that it is version %d", v, r.Version())
		}
		read(t, r)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTruncated: a state that lacks its end is refused, wherever it was cut.
func TestTruncated(t *testing.T) {
	for n := range sample(Newest) {
		r, err := NewReader(sample(Newest)[:n])
		if err == nil {
			read(t, r)
			err = r.Close()
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestRefused: each thing that a reader refuses, and how it says so.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		says  string
		write func(*Writer)
		read  func(*Reader)
	}{
		{"a bool of 2", func(w *Writer) { w.U8(2) }, func(r *Reader) { r.Bool() }},
		{"6, not 0 to 5", func(w *Writer) { w.Int(6) }, func(r *Reader) { r.Int(5) }},
		{"-1, not 0 to 5", func(w *Writer) { w.Int(-1) }, func(r *Reader) { r.Int(5) }},
		{"a list of 3, at most 2", func(w *Writer) { w.Count(3) }, func(r *Reader) { r.Count(2, 1) }},
		{"does not fit", func(w *Writer) { w.Count(math.MaxUint32) }, func(r *Reader) { r.Count(math.MaxInt, 1<<20) }},
		{"an address of 5 bytes", func(w *Writer) { w.Blob(make([]byte, 5)) }, func(r *Reader) { r.Addr() }},
		{"file 2 of 2", func(w *Writer) { w.Range(Range{2, 0, 1}) }, func(r *Reader) { r.Range(2) }},
		{"wraps around", func(w *Writer) { w.Range(Range{0, math.MaxUint64, 1}) }, func(r *Reader) { r.Range(1) }},
		{"without a file", func(w *Writer) { w.Range(Range{NoFile, 0, 1}) }, func(r *Reader) { r.Range(1) }},
		{"section 65281, not 65282", func(w *Writer) { w.Begin(TagTests + 1); w.End() }, func(r *Reader) { r.Begin(TagTests + 2) }},
		{"4 bytes are too many", func(w *Writer) { w.U32(1) }, func(*Reader) {}},
		{"section 65280, byte 24: my own", func(w *Writer) { w.U32(1) }, func(r *Reader) { r.U32(); r.Fail("my own") }},
	} {
		w := NewWriter(Newest)
		w.Begin(TagTests)
		c.write(w)
		w.End()
		r, err := NewReader(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		r.Begin(TagTests)
		c.read(r)
		r.End()
		if err := r.Close(); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
		if r.U64() != 0 || r.Count(10, 1) != 0 || r.Blob(1) != nil {
			t.Errorf("%s: something was read after the error", c.says)
		}
	}
	for _, head := range []string{"", "rdsdhand", "rdsdhind\x01\x00\x00\x00", "rdsdhand\x00\x00\x00\x00", "rdsdhand\xff\xff\x00\x00", "rdsdhand\x01\x00\x01\x00"} {
		if _, err := NewReader([]byte(head)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// FuzzReader: whatever the bytes are, a reader neither panics nor makes lists that are
// larger than the state.
func FuzzReader(f *testing.F) {
	for v := Oldest; v <= Newest; v++ {
		f.Add(sample(v), []byte{8, 0, 1, 2, 3, 3, 4, 5, 5, 8, 6, 6, 9})
	}
	f.Fuzz(func(t *testing.T, state, script []byte) {
		r, err := NewReader(state)
		if err != nil {
			return
		}
		depth := 0
		for _, op := range script {
			switch op % 11 {
			case 0:
				r.U8()
			case 1:
				r.U16()
			case 2:
				r.U64()
			case 3:
				r.Bool()
			case 4:
				if n := r.Count(math.MaxInt, 1); n > len(state) {
					t.Fatalf("a list of %d in %d bytes", n, len(state))
				}
			case 5:
				r.Addr()
			case 6:
				r.Range(int(op))
			case 7:
				r.Int(int(op))
			case 8:
				r.Begin(TagTests + Tag(depth))
				depth++
			case 9:
				if depth > 0 {
					r.End()
					depth--
				}
			case 10:
				if b := r.Blob(math.MaxInt); len(b) > len(state) {
					t.Fatalf("%d bytes of %d", len(b), len(state))
				}
			}
		}
		if err := r.Close(); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}

// TestSize: the size of a table is bounded by the table's limit alone, and a list whose elements
// have no bytes is none.
func TestSize(t *testing.T) {
	for _, n := range []int{0, 1, 21, 65535} {
		w := NewWriter(Newest)
		w.Size(n)
		for most, want := range map[int]int{65535: n, n: n, max(n-1, 0): 0} {
			r, err := NewReader(w.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Size(most); got != want || (r.Err() == nil) != (most >= n) {
				t.Errorf("a table of %d, at most %d: %d, %v", n, most, got, r.Err())
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a list without bytes was read")
		}
	}()
	r, err := NewReader(sample(Newest))
	if err != nil {
		t.Fatal(err)
	}
	r.Count(1, 0)
}
