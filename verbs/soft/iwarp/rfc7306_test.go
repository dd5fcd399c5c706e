package iwarp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestRFC7306Vectors are frames that other software judged good.
func TestRFC7306Vectors(t *testing.T) {
	f := unhex(t, "0046414a000000000000000100000002000000000000000000"+"00004d000033330000000000008000000000000000000100000000000000000000000000000000ffffffffffffffffa49185a7")
	got := make([]byte, FPDUSize(AtomicReqULPDU))
	PutUntagged(got, OpAtomicRequest, true, AtomicReqLen, 0, QNRead, 2, 0)
	r := AtomicRequest{Op: AtomicFetchAdd, ID: 77, STag: 0x3333, TO: 0x8000, Data: 1, CompareMask: ^uint64(0)}
	r.Put(got[UntaggedLen:])
	Seal(got, true)
	if !bytes.Equal(got, f) {
		t.Errorf("request %x, want %x", got, f)
	}
	var back AtomicRequest
	back.Parse(f[UntaggedLen:])
	if back != r {
		t.Errorf("parsed %+v", back)
	}
	f = unhex(t, "001e414b000000000000000300000001000000000000004d000000000000002a3609df7f")
	got = make([]byte, len(f))
	PutUntagged(got, OpAtomicResponse, true, AtomicRespLen, 0, QNAtomic, 1, 0)
	PutAtomicResponse(got[UntaggedLen:], 77, 42)
	Seal(got, true)
	if id, old := ParseAtomicResponse(f[UntaggedLen:]); !bytes.Equal(got, f) || id != 77 || old != 42 {
		t.Errorf("response %x, want %x", got, f)
	}
}

func TestAtomicApply(t *testing.T) {
	const ones = ^uint64(0)
	for _, c := range []struct {
		name      string
		r         AtomicRequest
		old, want uint64
	}{
		{"add wraps", AtomicRequest{Op: AtomicFetchAdd, Data: 3}, ones, 2},
		{"add in fields", AtomicRequest{Op: AtomicFetchAdd, Data: 0x01_01, DataMask: 0x80_80}, 0x01_ff, 0x02_00},
		{"swap, equal", AtomicRequest{Op: AtomicCmpSwap, Compare: 5, Data: 9, CompareMask: ones, DataMask: ones}, 5, 9},
		{"swap, different", AtomicRequest{Op: AtomicCmpSwap, Compare: 5, Data: 9, CompareMask: ones, DataMask: ones}, 6, 6},
		{"swap, masks", AtomicRequest{Op: AtomicCmpSwap, Compare: 0xff05, Data: 0x1111, CompareMask: 0xff, DataMask: 0xff00}, 0xaa05, 0x1105},
	} {
		if got := c.r.Apply(c.old); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

// TestMarkerVectors are figures 5 and 6 of RFC 5044.
func TestMarkerVectors(t *testing.T) {
	frame := func(msn uint32) []byte {
		f := make([]byte, FPDUSize(UntaggedLen-LenField+24))
		PutUntagged(f, OpSend, true, 24, 0, 0, msn, 0)
		return f
	}
	var m Marker
	dst := make([]byte, 1024)
	n := m.Put(dst, frame(1), true)
	want := unhex(t, "00000000002a414300000000000000000000000100000000"+"000000000000000000000000000000000000000000000000"+"52239983")
	if !bytes.Equal(dst[:n], want) {
		t.Errorf("first frame %x, want %x", dst[:n], want)
	}
	m.pos = markerInterval - 0x14
	n = m.Put(dst, frame(2), true)
	want = unhex(t, "002a41430000000000000000000000020000000000000014"+"000000000000000000000000000000000000000000000000"+"84925898")
	if !bytes.Equal(dst[:n], want) {
		t.Errorf("frame around a marker %x, want %x", dst[:n], want)
	}
}

// TestMarkerStream takes the markers out again: each is where it must be and
// points where it must, and what is left are the frames.
func TestMarkerStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var m Marker
	var stream, plain []byte
	var starts []int
	dst := make([]byte, 1<<17)
	for range 300 {
		n := rng.IntN(40)
		if rng.IntN(4) == 0 {
			n = rng.IntN(MaxPayload + 1)
		}
		f := make([]byte, FPDUSize(UntaggedLen-LenField+n))
		PutUntagged(f, OpSend, true, n, 0, 0, 1, 0)
		k := m.Put(dst, f, true)
		if k > m.MaxSize(len(f)) {
			t.Fatalf("%d bytes, bound %d", k, m.MaxSize(len(f)))
		}
		start := len(stream)
		if start%markerInterval == 0 {
			start += MarkerLen
		}
		starts = append(starts, start)
		stream = append(stream, dst[:k]...)
		plain = append(plain, f[:len(f)-CRCLen]...)
		plain = append(plain, dst[k-CRCLen:k]...)
	}
	var left []byte
	next := 0
	for i := 0; i < len(stream); i++ {
		if i%markerInterval != 0 {
			left = append(left, stream[i])
			continue
		}
		for next+1 < len(starts) && starts[next+1] <= i {
			next++
		}
		want := 0
		if starts[next] <= i {
			want = i - starts[next]
		}
		if next+1 < len(starts) && starts[next+1] == i+MarkerLen {
			want = 0
		}
		if got := int(stream[i+2])<<8 | int(stream[i+3]); got != want || stream[i]|stream[i+1] != 0 {
			t.Fatalf("marker at %d: %x, want %d", i, stream[i:i+4], want)
		}
		i += MarkerLen - 1
	}
	if !bytes.Equal(left, plain) {
		t.Error("the stream without its markers is not the frames")
	}
}

func TestFeatures(t *testing.T) {
	f := Features{Immediate: true, Atomics: true, RNRRetry: 3, Reserve: 2, ParkMsgs: 16, ParkKiB: 1024}
	b := f.Append([]byte("consumer"))
	if len(b) != 8+FeaturesLen {
		t.Fatalf("%d bytes", len(b))
	}
	if c, got, ok := SplitFeatures(b); !ok || got != f || string(c) != "consumer" {
		t.Errorf("%q %+v %v", c, got, ok)
	}
	for _, x := range [][]byte{nil, []byte("short"), append(b[:len(b):len(b)], 0), bytes.Repeat([]byte("rdsd"), 20)} {
		if c, _, ok := SplitFeatures(x); ok || !bytes.Equal(c, x) {
			t.Errorf("%x taken for a trailer", x)
		}
	}
}

func FuzzAtomic(f *testing.F) {
	f.Add(make([]byte, AtomicReqLen), uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, old uint64) {
		if len(b) < AtomicReqLen {
			return
		}
		var r, again AtomicRequest
		r.Parse(b)
		out := make([]byte, AtomicReqLen)
		r.Put(out)
		if again.Parse(out); again != r {
			t.Errorf("%+v became %+v", r, again)
		}
		r.Apply(old)
		SplitFeatures(b)
	})
}
