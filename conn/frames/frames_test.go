package frames

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestRoundTrip: what Put writes, Next reads, and Check counts.
func TestRoundTrip(t *testing.T) {
	var run []byte
	payloads := [][]byte{[]byte("a"), nil, []byte("four"), bytes.Repeat([]byte("x"), 1001), nil}
	total := 0
	for _, p := range payloads {
		b := make([]byte, Size(len(p)))
		for i := range b {
			b[i] = 0xee // what the memory held before
		}
		if n := Put(b, p); n != len(b) {
			t.Fatalf("Put wrote %d bytes of a payload of %d, Size says %d", n, len(p), len(b))
		}
		if rest := b[Head+len(p):]; !bytes.Equal(rest, make([]byte, len(rest))) {
			t.Errorf("the padding of %d bytes is %x", len(p), rest)
		}
		run = append(run, b...)
		total += len(p)
	}
	if s, ok := Check(run, len(payloads)); !ok || s != (Sum{len(payloads), 3, total}) {
		t.Errorf("Check says %+v, %v", s, ok)
	}
	rest := run
	for i, want := range payloads {
		var p []byte
		var ok bool
		if p, rest, ok = Next(rest); !ok || !bytes.Equal(p, want) {
			t.Fatalf("frame %d is %q, %v, want %q", i, p, ok, want)
		}
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes behind the last frame", len(rest))
	}
}

// TestMalformed: a run that is not exactly what it is said to be is refused.
func TestMalformed(t *testing.T) {
	head := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	for _, c := range []struct {
		name string
		b    []byte
		n    int
	}{
		{"nothing", nil, 1},
		{"no frames", head(0), 0},
		{"half a length", head(0)[:3], 1},
		{"payload past the end", append(head(5), "four"...), 1},
		{"padding past the end", append(head(3), "abc"...), 1},
		{"length past 32 bits when rounded", head(0xffffffff), 1},
		{"one frame fewer than said", head(0), 2},
		{"one frame more than said", append(head(0), head(0)...), 1},
		{"too long", append(head(MaxLen), make([]byte, MaxLen)...), 1},
	} {
		if s, ok := Check(c.b, c.n); ok {
			t.Errorf("%s: taken as %+v", c.name, s)
		}
	}
}

// FuzzCheck: Check and Next agree about every memory, and neither looks beyond it.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 'a', 0, 0, 0, 0, 0, 0, 0}, 2)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		s, ok := Check(b, n)
		rest, sum, good := b, Sum{}, n > 0 && len(b) <= MaxLen
		for range min(max(n, 0), len(b)/Head+1) {
			p, r, whole := Next(rest)
			if !whole {
				good = false
				break
			}
			if cap(p) != len(p) {
				t.Fatalf("a payload of %d bytes reaches %d bytes further", len(p), cap(p)-len(p))
			}
			sum.Datagrams++
			sum.Bytes += len(p)
			if len(p) > 0 {
				sum.NonEmpty++
			}
			rest = r
		}
		good = good && len(rest) == 0 && sum.Datagrams == n
		if ok != good || ok && s != sum {
			t.Errorf("Check says %+v, %v; frame by frame it is %+v, %v", s, ok, sum, good)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	run := make([]byte, 0, 8<<10)
	n := 0
	for ; len(run)+Size(64) <= cap(run); n++ {
		run = run[:len(run)+Size(64)]
		Put(run[len(run)-Size(64):], make([]byte, 64))
	}
	for b.Loop() {
		if _, ok := Check(run, n); !ok {
			b.Fatal("malformed")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/frame")
}
