package handover

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// sample is a state with one of everything.
type sample struct {
	u8     uint8
	u16    uint16
	u32    [3]uint32
	u64    [2]uint64
	i64    int64
	n      int
	flags  [2]bool
	blob   []byte
	text   string
	addrs  []netip.Addr
	ranges [2]Range
}

func newSample() *sample {
	return &sample{u8: 0x11, u16: 0x2233, u32: [3]uint32{0x44556677}, u64: [2]uint64{0x8899aabbccddeeff}, i64: -2, n: 5, flags: [2]bool{true, false},
		blob: []byte("blob"), text: "text", addrs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::7")},
		ranges: [2]Range{{3, 4096, 1 << 20}, {File: NoFile}}}
}

// handOver has x go over.
func (x *sample) handOver(s *State) {
	var none netip.Addr
	s.Begin(TagTests)
	s.U8(&x.u8)
	s.U16(&x.u16)
	s.U32(&x.u32[0])
	s.U64(&x.u64[0])
	s.I64(&x.i64)
	s.Int(&x.n, 5)
	s.Bool(&x.flags[0])
	s.Bool(&x.flags[1])
	s.Begin(TagTests + 1)
	s.Blob(&x.blob, 4)
	s.String(&x.text, 100)
	s.End()
	for i := range Slice(s, &x.addrs, 2, 4) {
		s.Addr(&x.addrs[i])
	}
	s.Addr(&none)
	s.Range(&x.ranges[0], 4)
	s.Range(&x.ranges[1], 0)
	s.End()
	s.Begin(TagTests + 2)
	s.End()
}

// bytes is x in a version.
func (x *sample) bytes(version uint16) []byte {
	s := Write(version)
	x.handOver(s)
	return s.Bytes()
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
		if got := newSample().bytes(v); !bytes.Equal(got, golden) {
			t.Errorf("version %d, written:\n%x\nthe golden bytes are\n%x", v, got, golden)
		}
		s, err := Read(golden)
		if err != nil {
			t.Fatal(err)
		}
		if s.Version() != v {
			t.Errorf("version %d says that it is version %d", v, s.Version())
		}
		var x sample
		x.handOver(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if want := newSample(); !reflect.DeepEqual(&x, want) {
			t.Errorf("version %d: %+v is read, %+v was written", v, &x, want)
		}
	}
}

// TestTruncated: a state that lacks its end is refused, wherever it was cut.
func TestTruncated(t *testing.T) {
	all := newSample().bytes(Newest)
	for n := range all {
		s, err := Read(all[:n])
		if err == nil {
			new(sample).handOver(s)
			err = s.Close()
		}
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestRefused: each thing that is refused when it is read, and how it is said.
func TestRefused(t *testing.T) {
	var (
		yes  bool
		n    int
		n32  uint32
		addr netip.Addr
		in   Range
	)
	for _, c := range []struct {
		says  string
		write func(*State)
		read  func(*State)
	}{
		{"a bool of 2", func(s *State) { s.U8(new(uint8(2))) }, func(s *State) { s.Bool(&yes) }},
		{"6, not 0 to 5", func(s *State) { s.Int(new(6), 5) }, func(s *State) { s.Int(&n, 5) }},
		{"-1, not 0 to 5", func(s *State) { s.Int(new(-1), 5) }, func(s *State) { s.Int(&n, 5) }},
		{"a list of 3, at most 2", func(s *State) { s.Count(3, 2, 1) }, func(s *State) { s.Count(0, 2, 1) }},
		{"does not fit", func(s *State) { s.Count(math.MaxUint32, 0, 1) }, func(s *State) { s.Count(0, math.MaxInt, 1<<20) }},
		{"a list of 1 numbers, not 2", func(s *State) { s.Table(make([]uint64, 1)) }, func(s *State) { s.Table(make([]uint64, 2)) }},
		{"a list of 1 counters, not 2", func(s *State) { s.Table(make([]uint64, 1)) }, func(s *State) { s.Counters(&struct{ A, B uint64 }{}) }},
		{"an address of 5 bytes", func(s *State) { s.Blob(new(make([]byte, 5)), 5) }, func(s *State) { s.Addr(&addr) }},
		{"file 2 of 2", func(s *State) { s.Range(&Range{2, 0, 1}, 3) }, func(s *State) { s.Range(&in, 2) }},
		{"wraps around", func(s *State) { s.Range(&Range{0, math.MaxUint64, 1}, 1) }, func(s *State) { s.Range(&in, 1) }},
		{"without a file", func(s *State) { s.Range(&Range{NoFile, 0, 1}, 1) }, func(s *State) { s.Range(&in, 1) }},
		{"section 65281, not 65282", func(s *State) { s.Begin(TagTests + 1); s.End() }, func(s *State) { s.Begin(TagTests + 2) }},
		{"4 bytes are too many", func(s *State) { s.U32(new(uint32(1))) }, func(*State) {}},
		{"section 65280, byte 24: my own", func(s *State) { s.U32(new(uint32(1))) }, func(s *State) { s.U32(&n32); s.Fail("my own") }},
		{"section 65280, byte 24: another's", func(s *State) { s.U32(new(uint32(1))) }, func(s *State) { s.U32(&n32); s.Refuse(errors.New("another's")) }},
	} {
		w := Write(Newest)
		w.Begin(TagTests)
		c.write(w)
		w.End()
		s, err := Read(w.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		s.Begin(TagTests)
		c.read(s)
		s.End()
		if err := s.Close(); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
		x := newSample()
		s.U64(&x.u64[0])
		s.Blob(&x.blob, 1)
		if _, known := s.Flags(&x.flags[0]); x.u64[0] != 0 || s.Count(0, 10, 1) != 0 || x.blob != nil || x.flags[0] || !known {
			t.Errorf("%s: something was read after the error", c.says)
		}
	}
	for _, head := range []string{"", "rdsdhand", "rdsdhind\x01\x00\x00\x00", "rdsdhand\x00\x00\x00\x00", "rdsdhand\xff\xff\x00\x00", "rdsdhand\x01\x00\x01\x00"} {
		if _, err := Read([]byte(head)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// TestBothWays: whatever is not in the golden bytes arrives as it was written, and has the bytes of the
// numbers of which it consists.
func TestBothWays(t *testing.T) {
	type all struct {
		n32    [2]uint32
		n64    [2]uint64
		i64    [2]int64
		flags  [11]bool
		small  int
		kind   Tag
		wide   Tag
		list   []uint64
		counts struct{ A, B uint64 }
		at     time.Time
		why    error
		none   error
		cut    string
	}
	both := func(s *State, x *all) (uint16, bool) {
		s.U32s(&x.n32[0], &x.n32[1])
		s.U64s(&x.n64[0], &x.n64[1])
		s.I64s(&x.i64[0], &x.i64[1])
		f, known := s.Flags(&x.flags[0], &x.flags[1], &x.flags[2], &x.flags[3], &x.flags[4], &x.flags[5], &x.flags[6], &x.flags[7],
			&x.flags[8], &x.flags[9], &x.flags[10])
		As8(s, &x.small)
		As16(s, &x.kind)
		As32(s, &x.wide)
		s.Table(x.list)
		s.Counters(&x.counts)
		s.Time(&x.at)
		s.Error(&x.why, 100)
		s.Error(&x.none, 100)
		s.Text(&x.cut, 3)
		return f, known
	}
	x := all{n32: [2]uint32{1, 2}, n64: [2]uint64{3, 4}, i64: [2]int64{-5, 6}, flags: [11]bool{1: true, 10: true}, small: 200, kind: 7, wide: 8,
		list: []uint64{9, 10}, at: time.Unix(11, 12).UTC(), why: errors.New("why"), cut: "long"}
	x.counts.A, x.counts.B = 13, 14
	w := Write(Newest)
	both(w, &x)
	s, err := Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := all{list: make([]uint64, 2), none: errors.New("another")}
	f, known := both(s, &got)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	x.cut = "lon"
	if !reflect.DeepEqual(got, x) || f != 1<<1|1<<10 || !known {
		t.Errorf("%+v is read with flags %#x, %+v was written", got, f, x)
	}
	s, _ = Read(w.Bytes())
	s.take(2*4 + 4*8)
	if f, known := s.Flags(&x.flags[0]); f != 1<<1|1<<10 || known {
		t.Errorf("flags %#x of one are known", f)
	}
}

// TestFaults: an error in what is one session's alone, of a state that is read and of one that is written.
func TestFaults(t *testing.T) {
	mine, shared := errors.New("mine"), errors.New("shared")
	each := func(s *State, bad func(session uint32)) {
		for i := range uint32(3) {
			s.Alone(TagTests, i, func() {
				var n uint32
				s.U32(&n)
				bad(i)
			})
		}
		s.Faulty()
	}
	w := Write(Newest)
	each(w, func(i uint32) {
		if i != 1 {
			w.Refuse(mine)
			w.Refuse(shared) // not the first
		}
	})
	if all := FaultsIn(w.Err()); len(all) != 2 || all[0].Session != 0 || all[1].Session != 2 || !errors.Is(all[1], mine) {
		t.Errorf("written: %v", w.Err())
	}
	s, err := Read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	each(s, func(i uint32) {
		if i != 0 {
			s.Fail("session %d", i)
		}
	})
	if all := FaultsIn(s.Err()); len(all) != 2 || all[0].Session != 1 || all[1].Session != 2 || !errors.Is(all[1], ErrFormat) {
		t.Errorf("read: %v", s.Err())
	}
	w = Write(Newest)
	w.Refuse(nil)
	w.Fail("only of what is read")
	if w.Faulty() {
		t.Errorf("failed with %v", w.Err())
	}
	w.Refuse(shared)
	w.Refuse(mine)
	if !w.Faulty() || !errors.Is(w.Err(), shared) || FaultsIn(w.Err()) != nil {
		t.Errorf("failed with %v", w.Err())
	}
}

// FuzzReader: whatever the bytes are, reading them neither panics nor makes lists that are
// larger than the state.
func FuzzReader(f *testing.F) {
	for v := Oldest; v <= Newest; v++ {
		f.Add(newSample().bytes(v), []byte{8, 0, 1, 2, 3, 3, 4, 5, 5, 8, 6, 6, 9})
	}
	f.Fuzz(func(t *testing.T, state, script []byte) {
		s, err := Read(state)
		if err != nil {
			return
		}
		var x sample
		depth := 0
		for _, op := range script {
			switch op % 11 {
			case 0:
				s.U8(&x.u8)
			case 1:
				s.U16(&x.u16)
			case 2:
				s.U64(&x.u64[0])
			case 3:
				s.Bool(&x.flags[0])
			case 4:
				if n := s.Count(0, math.MaxInt, 1); n > len(state) {
					t.Fatalf("a list of %d in %d bytes", n, len(state))
				}
			case 5:
				s.Addr(new(netip.Addr))
			case 6:
				s.Range(&x.ranges[0], int(op))
			case 7:
				s.Int(&x.n, int(op))
			case 8:
				s.Begin(TagTests + Tag(depth))
				depth++
			case 9:
				if depth > 0 {
					s.End()
					depth--
				}
			case 10:
				if s.Blob(&x.blob, math.MaxInt); len(x.blob) > len(state) {
					t.Fatalf("%d bytes of %d", len(x.blob), len(state))
				}
			}
		}
		if err := s.Close(); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}

// TestSize: the size of a table is bounded by the table's limit alone, and a list whose elements
// have no bytes is none.
func TestSize(t *testing.T) {
	for _, n := range []int{0, 1, 21, 65535} {
		w := Write(Newest)
		w.Size(n, n)
		for most, want := range map[int]int{65535: n, n: n, max(n-1, 0): 0} {
			s, err := Read(w.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Size(0, most); got != want || (s.Err() == nil) != (most >= n) {
				t.Errorf("a table of %d, at most %d: %d, %v", n, most, got, s.Err())
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a list without bytes was read")
		}
	}()
	Write(Newest).Count(1, 1, 0)
}
