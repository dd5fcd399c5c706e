package cong

import (
	"errors"
	"math/rand/v2"
	"testing"
)

func TestSetClear(t *testing.T) {
	var m Map
	for _, p := range []uint16{0, 1, 7, 8, 63, 64, 1234, 65535} {
		if m.Test(p) || m.Clear(p) {
			t.Errorf("port %d congested in an empty map", p)
		}
		if !m.Set(p) || m.Set(p) || !m.Test(p) {
			t.Errorf("Set(%d)", p)
		}
	}
	if m.Count() != 8 || m.Empty() {
		t.Errorf("Count %d", m.Count())
	}
	if !m.Clear(64) || m.Clear(64) || m.Test(64) || m.Count() != 7 {
		t.Error("Clear(64)")
	}
	m.Reset()
	if !m.Empty() || m.Test(0) || m.Test(65535) {
		t.Error("Reset")
	}
}

// The wire's bit order, by hand.
func TestLayout(t *testing.T) {
	b := make([]byte, Len)
	for _, p := range []uint16{0, 9, 63, 64, 4000, 65535} {
		var m Map
		m.Set(p)
		m.Put(b)
		for i, v := range b {
			want := byte(0)
			if i == int(p>>3) {
				want = 1 << (p & 7)
			}
			if v != want {
				t.Fatalf("port %d: byte %d is %#x, want %#x", p, i, v, want)
			}
		}
	}
	new(Map).Put(b)
	for _, v := range b {
		if v != 0 {
			t.Fatal("an empty map left old bits")
		}
	}
}

func TestLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var m Map
	have := map[uint16]bool{}
	for round := range 50 {
		var next Map
		want := map[uint16]bool{}
		for range rng.IntN(200) * (round % 3) {
			p := uint16(rng.Uint32())
			next.Set(p)
			want[p] = true
		}
		b := make([]byte, Len)
		next.Put(b)
		last := -1
		if err := m.Load(b, func(p uint16, c bool) {
			if int(p) <= last {
				t.Fatalf("port %d after %d", p, last)
			}
			last = int(p)
			if have[p] == c || want[p] != c || m.Test(p) != c {
				t.Fatalf("port %d reported %v", p, c)
			}
			have[p] = c
		}); err != nil {
			t.Fatal(err)
		}
		for p := range 1 << 16 {
			if have[uint16(p)] != want[uint16(p)] || m.Test(uint16(p)) != want[uint16(p)] {
				t.Fatalf("round %d: port %d", round, p)
			}
		}
		if m.Count() != len(want) {
			t.Fatalf("Count %d, want %d", m.Count(), len(want))
		}
	}
	if err := m.Load(make([]byte, Len-1), nil); !errors.Is(err, ErrLen) {
		t.Errorf("short map: %v", err)
	}
	if err := m.Load(make([]byte, Len+1), nil); !errors.Is(err, ErrLen) {
		t.Errorf("long map: %v", err)
	}
}

func TestCost(t *testing.T) {
	zeros, ones := make([]byte, Len), make([]byte, Len)
	ones[100] = 0xff
	if n := testing.AllocsPerRun(100, func() {
		var m Map
		if m.Load(zeros, nil) != nil || m.Test(5) || m.Clear(5) || m.w != nil {
			t.Fatal("an all-zero map took memory")
		}
	}); n != 0 {
		t.Errorf("empty map: %v allocations", n)
	}
	var m Map
	m.Set(1)
	changed := 0
	f := func(uint16, bool) { changed++ }
	if n := testing.AllocsPerRun(100, func() {
		m.Load(ones, f)
		m.Load(zeros, f)
		m.Set(3)
		m.Put(ones)
		ones[0] = 0
		ones[100] = 0xff
	}); n != 0 {
		t.Errorf("%v allocations per update", n)
	}
	if changed == 0 {
		t.Error("no change seen")
	}
}
