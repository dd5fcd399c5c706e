package cmsg

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// The bytes are glibc's CMSG_FIRSTHDR, CMSG_NXTHDR and CMSG_DATA.
const chainHex = "140000000000000014010000" + "0c000000" + "1413121100000000" +
	"180000000000000014010000" + "02000000" + "2827262524232221"

func TestChain(t *testing.T) {
	want, err := hex.DecodeString(chainHex)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte{0x14, 0x13, 0x12, 0x11}
	cookie := []byte{0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21}
	got := Append(Append(nil, SOLRDS, TypeZcopyCookie, data), SOLRDS, TypeRDMADest, cookie)
	if !bytes.Equal(got, want) {
		t.Fatalf("chain\n%x, want\n%x", got, want)
	}
	m, rest, ok, err := Next(got)
	if err != nil || !ok || m.Level != SOLRDS || m.Type != TypeZcopyCookie || !bytes.Equal(m.Data, data) {
		t.Errorf("first: %+v, %v, %v", m, ok, err)
	}
	m, rest, ok, err = Next(rest)
	if err != nil || !ok || m.Type != TypeRDMADest || !bytes.Equal(m.Data, cookie) {
		t.Errorf("second: %+v, %v, %v", m, ok, err)
	}
	if _, _, ok, err = Next(rest); ok || err != nil {
		t.Errorf("third: %v, %v", ok, err)
	}
}

func TestNext(t *testing.T) {
	whole := Append(nil, 1, 2, []byte("abc"))
	header := func(n uint64) []byte { return order.AppendUint64(nil, n) }
	long := func(n uint64, total int) []byte { return append(header(n), make([]byte, total-8)...) }
	for _, c := range []struct {
		name string
		b    []byte
		n    int // bytes of data, -1: end of the chain
		rest int
		want unix.Errno
	}{
		{"nothing", nil, -1, 0, 0},
		{"shorter than a header", whole[:15], -1, 0, 0},
		{"with its padding", whole, 3, 0, 0},
		{"the last one unpadded", whole[:19], 3, 0, 0},
		{"padding cut", whole[:21], 3, 0, 0},
		{"no data", long(16, 16), 0, 0, 0},
		{"something behind", long(17, 32), 1, 8, 0},
		{"data cut", whole[:18], 0, 0, unix.EINVAL},
		{"length 15", long(15, 32), 0, 0, unix.EINVAL},
		{"length 0", long(0, 32), 0, 0, unix.EINVAL},
		{"one beyond", long(33, 32), 0, 0, unix.EINVAL},
		{"2^63", long(1<<63, 32), 0, 0, unix.EINVAL},
		{"2^64 - 1", long(1<<64-1, 32), 0, 0, unix.EINVAL},
	} {
		m, rest, ok, err := Next(c.b)
		if !is(err, c.want) || ok != (c.want == 0 && c.n >= 0) || ok && len(m.Data) != c.n || len(rest) != c.rest {
			t.Errorf("%s: %d bytes, rest %d, %v, %v", c.name, len(m.Data), len(rest), ok, err)
		}
	}
}

func TestSendGroups(t *testing.T) {
	of := func(types ...Type) (b []byte) {
		for _, typ := range types {
			b = Append(b, SOLRDS, typ, bytes.Repeat([]byte{byte(typ)}, AtomicArgsSize)) // long enough for all
		}
		return b
	}
	const (
		args, dest, mr, fadd, cswp, mfadd, mcswp, zc = TypeRDMAArgs, TypeRDMADest, TypeRDMAMap,
			TypeAtomicFAdd, TypeAtomicCSwp, TypeMaskedAtomicFAdd, TypeMaskedAtomicCSwp, TypeZcopyCookie
	)
	for _, c := range []struct {
		types []Type
		ok    bool
	}{
		{nil, true},
		{[]Type{args}, true}, {[]Type{dest}, true}, {[]Type{mr}, true}, {[]Type{zc}, true},
		{[]Type{fadd}, true}, {[]Type{cswp}, true}, {[]Type{mfadd}, true}, {[]Type{mcswp}, true},
		// An operation and an atomic, in any order.
		{[]Type{args, fadd}, true}, {[]Type{mcswp, args}, true},
		{[]Type{dest, zc}, true}, {[]Type{zc, mr}, true},
		// Anything twice, zero-copy cookies excepted.
		{[]Type{zc, zc}, true},
		{[]Type{args, args}, false}, {[]Type{dest, dest}, false}, {[]Type{mr, mr}, false}, {[]Type{fadd, fadd}, false},
		{[]Type{fadd, cswp}, false}, {[]Type{mfadd, args, mcswp}, false},
		// Both groups.
		{[]Type{args, dest}, false}, {[]Type{dest, args}, false}, {[]Type{args, mr}, false}, {[]Type{args, zc}, false},
		{[]Type{fadd, dest}, false}, {[]Type{mr, cswp}, false}, {[]Type{zc, mfadd}, false},
		{[]Type{dest, mr}, false}, {[]Type{mr, dest}, false},
		// What cannot be sent.
		{[]Type{TypeRDMAStatus}, false}, {[]Type{TypeCongUpdate}, false}, {[]Type{TypeRxPathLatency}, false},
		{[]Type{TypeZcopyCompletion}, false}, {[]Type{0}, false}, {[]Type{10}, false}, {[]Type{14}, false},
		{[]Type{-1}, false}, {[]Type{33}, false},
	} {
		var s Send
		err := s.Parse(of(c.types...))
		if c.ok != (err == nil) || err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("%v: %v, want ok %v", c.types, err, c.ok)
		}
		if err == nil && s.Present != Of(c.types...) {
			t.Errorf("%v: present %b", c.types, s.Present)
		}
	}
}

func TestSendRoundTrip(t *testing.T) {
	for _, s := range []Send{
		{},
		{Present: Of(TypeRDMAArgs), Args: rdmaArgs},
		{Present: Of(TypeRDMAArgs, TypeMaskedAtomicCSwp), Args: rdmaArgs, Atomic: atomicArgs},
		{Present: Of(TypeAtomicFAdd), Atomic: atomicArgs},
		{Present: Of(TypeRDMADest, TypeZcopyCookie), Dest: 1 << 63, ZcopyCookie: 7},
		{Present: Of(TypeRDMAMap), Map: getMR},
	} {
		b, err := s.Append([]byte("12345678"))
		if err != nil {
			t.Errorf("%b: %v", s.Present, err)
			continue
		}
		foreign := Append(b[8:], unix.SOL_SOCKET, 1, []byte("ignored")) // other levels
		var back Send
		if err := back.Parse(foreign); err != nil || back != s {
			t.Errorf("%+v came back as %+v, %v", s, back, err)
		}
	}
	for _, types := range [][]Type{{TypeRDMAArgs, TypeRDMADest}, {TypeRDMAStatus}, {TypeAtomicFAdd, TypeAtomicCSwp}} {
		s := Send{Present: Of(types...)}
		if b, err := s.Append([]byte("x")); !errors.Is(err, unix.EINVAL) || string(b) != "x" {
			t.Errorf("%v: %q, %v", types, b, err)
		}
	}
}

func TestAtomicType(t *testing.T) {
	for typ := TypeAtomicFAdd; typ <= TypeMaskedAtomicCSwp; typ++ {
		s := Send{Present: Of(TypeRDMAArgs, typ)}
		if got := s.AtomicType(); got != typ {
			t.Errorf("AtomicType %d, want %d", got, typ)
		}
	}
	if got := (&Send{Present: Of(TypeRDMAArgs)}).AtomicType(); got != 0 {
		t.Errorf("AtomicType %d without an atomic", got)
	}
}

// Longer messages than the struct are accepted, shorter ones not; the last
// zero-copy cookie counts.
func TestSendLengths(t *testing.T) {
	sizes := map[Type]int{TypeRDMAArgs: 56, TypeRDMADest: 8, TypeRDMAMap: 32, TypeAtomicFAdd: 72, TypeZcopyCookie: 4}
	for typ, size := range sizes {
		var s Send
		if err := s.Parse(Append(nil, SOLRDS, typ, make([]byte, size-1))); !errors.Is(err, unix.EINVAL) {
			t.Errorf("type %d of %d bytes: %v", typ, size-1, err)
		}
		if err := s.Parse(Append(nil, SOLRDS, typ, make([]byte, size+1))); err != nil {
			t.Errorf("type %d of %d bytes: %v", typ, size+1, err)
		}
	}
	var s Send
	b := Append(nil, SOLRDS, TypeZcopyCookie, []byte{1, 0, 0, 0})
	if err := s.Parse(Append(b, SOLRDS, TypeZcopyCookie, []byte{2, 0, 0, 0})); err != nil || s.ZcopyCookie != 2 {
		t.Errorf("cookie %d, %v", s.ZcopyCookie, err)
	}
}

func TestRecvRoundTrip(t *testing.T) {
	for _, r := range []Recv{
		{},
		{Present: Of(TypeRDMADest, TypeRxPathLatency, TypeZcopyCompletion), Dest: 5, Trace: rxTrace, Zcopy: zcopy},
		{Present: Of(TypeRDMAStatus), Status: []Notify{{1, StatusSuccess}, {2, StatusDropped}, {3, StatusCanceled}}},
		{Present: Of(TypeCongUpdate), Cong: 1<<63 | 1},
	} {
		b := r.Append(nil)
		if len(b)%8 != 0 {
			t.Errorf("%b: %d bytes", r.Present, len(b))
		}
		b = Append(b, unix.SOL_SOCKET, unix.SCM_TIMESTAMP, make([]byte, 16)) // other levels
		b = Append(b, SOLRDS, 99, nil)                                       // a later kernel's
		var back Recv
		if err := back.Parse(b); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%+v came back as %+v, %v", r, back, err)
		}
	}
}

func TestRecvErrors(t *testing.T) {
	twice := Append(Append(nil, SOLRDS, TypeCongUpdate, make([]byte, 8)), SOLRDS, TypeCongUpdate, make([]byte, 8))
	for name, b := range map[string][]byte{
		"twice":        twice,
		"short DEST":   Append(nil, SOLRDS, TypeRDMADest, make([]byte, 7)),
		"short STATUS": Append(nil, SOLRDS, TypeRDMAStatus, make([]byte, 12)),
		"short CONG":   Append(nil, SOLRDS, TypeCongUpdate, make([]byte, 4)),
		"short trace":  Append(nil, SOLRDS, TypeRxPathLatency, make([]byte, 31)),
		"short zcopy":  Append(nil, SOLRDS, TypeZcopyCompletion, make([]byte, 35)),
		"broken chain": {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		var r Recv
		if err := r.Parse(b); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	s := Send{Present: Of(TypeRDMAArgs, TypeAtomicFAdd), Args: rdmaArgs, Atomic: atomicArgs}
	r := Recv{Present: Of(TypeRDMAStatus), Status: []Notify{{1, 2}, {3, 4}}}
	buf := make([]byte, 0, 256)
	var s2 Send
	var r2 Recv
	turn := func() {
		for range 100 {
			b, err := s.Append(buf[:0])
			if err != nil || s2.Parse(b) != nil {
				t.Fatal(err)
			}
			if err := r2.Parse(r.Append(buf[:0])); err != nil {
				t.Fatal(err)
			}
		}
	}
	turn()
	if n := testing.AllocsPerRun(10, turn); n != 0 {
		t.Errorf("%v allocations per 100 messages, want 0", n)
	}
}

// FuzzParse: whatever parses comes back the same after encoding.
func FuzzParse(f *testing.F) {
	send := Send{Present: Of(TypeRDMAArgs, TypeMaskedAtomicFAdd), Args: rdmaArgs, Atomic: atomicArgs}
	one, _ := send.Append(nil)
	two, _ := (&Send{Present: Of(TypeRDMAMap, TypeZcopyCookie), Map: getMR, ZcopyCookie: 3}).Append(nil)
	recv := Recv{Present: Of(TypeRDMADest, TypeRDMAStatus, TypeRxPathLatency, TypeZcopyCompletion), Dest: 9,
		Status: []Notify{notify, {}}, Trace: rxTrace, Zcopy: zcopy}
	chain, _ := hex.DecodeString(chainHex)
	for _, b := range [][]byte{nil, one, two, recv.Append(nil), chain, chain[:20], one[:len(one)-1]} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, s2 Send
		if err := s.Parse(b); err == nil {
			out, err := s.Append(nil)
			if err != nil {
				t.Fatalf("%+v does not encode: %v", s, err)
			}
			if err := s2.Parse(out); err != nil || s2 != s {
				t.Fatalf("%+v came back as %+v, %v", s, s2, err)
			}
		} else if !errors.Is(err, unix.EINVAL) {
			t.Fatalf("send: %v", err)
		}
		var r, r2 Recv
		if err := r.Parse(b); err == nil {
			if err := r2.Parse(r.Append(nil)); err != nil || !reflect.DeepEqual(r2, r) {
				t.Fatalf("%+v came back as %+v, %v", r, r2, err)
			}
		} else if !errors.Is(err, unix.EINVAL) {
			t.Fatalf("receive: %v", err)
		}
		var dest, dest2 GetMRForDestArgs
		if err := dest.Parse(b); err == nil {
			out, err := dest.Append(nil)
			if err != nil || dest2.Parse(out) != nil || dest2 != dest {
				t.Fatalf("%+v came back as %+v, %v", dest, dest2, err)
			}
		}
	})
}
