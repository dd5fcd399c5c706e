package shm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdsd/rdsd/abi"
)

func newTestArena(windows int) *Arena {
	a := NewArena()
	for range windows {
		a.AddWindow(make([]byte, WindowSize))
	}
	return a
}

// chunkModel is a live chunk with the pattern its bytes must keep.
type chunkModel struct {
	chunk uint32
	n     int
	tag   byte
}

// Random allocations and frees: chunks do not overlap, keep their content and lie within a
// window. At the end all memory is free.
func TestArenaAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for _, s := range []uint64{1, 2, seed} {
		if err := arenaModel(s, 30_000); err != nil {
			t.Errorf("seed %d: %v", s, err)
		}
	}
}

func arenaModel(seed uint64, steps int) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	a := newTestArena(2)
	owner := make([]int, 3*windowUnits) // live chunk + 1 per unit
	var live []chunkModel
	size := func() int {
		switch rng.IntN(10) {
		case 0:
			return 1 + rng.IntN(abi.MaxMessage)
		case 1:
			return 1 << rng.IntN(21)
		case 2:
			return PageSize/2 - 1 + rng.IntN(3)
		default:
			return 1 + rng.IntN(4096)
		}
	}
	free := func(i int) error {
		c := live[i]
		b := a.Bytes(c.chunk, c.n)
		for _, at := range []int{0, len(b) / 2, len(b) - 1} {
			if b[at] != c.tag {
				return fmt.Errorf("chunk %d of %d bytes: byte %d is %d, want %d", c.chunk, c.n, at, b[at], c.tag)
			}
		}
		for u := range (c.n + Unit - 1) / Unit {
			owner[int(c.chunk)+u] = 0
		}
		a.Free(c.chunk, c.n)
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
		return nil
	}
	for step := range steps {
		if step == steps/2 {
			a.AddWindow(make([]byte, WindowSize))
		}
		if step%1000 == 0 {
			var err error
			if a, err = retaken(rng, a, live); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		// Long phases of growth and of shrinking take turns.
		if len(live) > 0 && rng.IntN(100) < 40+20*(step/4000%2) {
			if err := free(rng.IntN(len(live))); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			continue
		}
		n := size()
		chunk, ok := a.Alloc(n)
		if !ok {
			if a.InUse() < WindowSize/8 && n <= maxSmall {
				return fmt.Errorf("step %d: no room for %d bytes with %d in use", step, n, a.InUse())
			}
			continue
		}
		if !a.Valid(chunk, n) {
			return fmt.Errorf("step %d: chunk %d of %d bytes is outside", step, chunk, n)
		}
		for u := range (n + Unit - 1) / Unit {
			if o := owner[int(chunk)+u]; o != 0 {
				return fmt.Errorf("step %d: chunk %d of %d bytes overlaps another", step, chunk, n)
			}
			owner[int(chunk)+u] = 1
		}
		c := chunkModel{chunk, n, byte(step)}
		b := a.Bytes(chunk, n)
		b[0], b[n/2], b[n-1] = c.tag, c.tag, c.tag
		live = append(live, c)
	}
	for len(live) > 0 {
		if err := free(len(live) - 1); err != nil {
			return err
		}
	}
	if a.InUse() != 0 {
		return fmt.Errorf("%d bytes in use at the end", a.InUse())
	}
	for i, w := range a.windows {
		if w.free != ^uint64(0) {
			return fmt.Errorf("window %d did not get all its pages back: %064b", i, w.free)
		}
	}
	return nil
}

func TestArenaFillsWholeWindow(t *testing.T) {
	for _, n := range []int{1, 64, 65, 1024, 32 << 10, 32<<10 + 1, 64 << 10, 1 << 20} {
		a := newTestArena(1)
		want := WindowSize / PageSize / ((n + PageSize - 1) / PageSize)
		if n <= maxSmall {
			want = WindowSize / (Unit << classOf(n))
		}
		var got []uint32
		for {
			c, ok := a.Alloc(n)
			if !ok {
				break
			}
			got = append(got, c)
		}
		if len(got) != want {
			t.Errorf("%d chunks of %d bytes fit a window, want %d", len(got), n, want)
		}
		if a.InUse() != WindowSize {
			t.Errorf("%d bytes: %d in use, want the window", n, a.InUse())
		}
		for _, c := range got {
			a.Free(c, n)
		}
		if _, ok := a.Alloc(abi.MaxMessage); !ok {
			t.Errorf("%d bytes: pages did not come back", n)
		}
	}
}

func TestArenaLastFreedFirstUsed(t *testing.T) {
	a := newTestArena(1)
	x, _ := a.Alloc(100)
	y, _ := a.Alloc(100)
	a.Alloc(100)
	a.Free(x, 100)
	a.Free(y, 100)
	if c, _ := a.Alloc(128); c != y {
		t.Errorf("got chunk %d, want the last one freed, %d", c, y)
	}
	if c, _ := a.Alloc(65); c != x {
		t.Errorf("got chunk %d, want %d", c, x)
	}
}

func TestArenaBounds(t *testing.T) {
	a := newTestArena(2)
	for _, n := range []int{0, -1, abi.MaxMessage + 1, 1 << 40} {
		if _, ok := a.Alloc(n); ok {
			t.Errorf("%d bytes allocated", n)
		}
	}
	if _, ok := NewArena().Alloc(1); ok {
		t.Error("allocated without a window")
	}
	for _, tc := range []struct {
		chunk uint32
		n     int
		want  bool
	}{
		{0, 1, true}, {0, WindowSize, true}, {0, WindowSize + 1, false}, {0, 0, false}, {0, -1, false},
		{windowUnits - 1, 64, true}, {windowUnits - 1, 65, false},
		{windowUnits, WindowSize, true}, {2*windowUnits - 1, 64, true},
		{2 * windowUnits, 1, false}, {^uint32(0), 1, false}, {^uint32(0), 1 << 62, false}, {1, int(^uint(0) >> 1), false},
	} {
		if got := a.Valid(tc.chunk, tc.n); got != tc.want {
			t.Errorf("chunk %d, %d bytes: valid %v", tc.chunk, tc.n, got)
		}
	}
	if b := a.Bytes(3, 10); len(b) != 10 || cap(b) != 10 {
		t.Errorf("len %d cap %d, want 10 and 10", len(b), cap(b))
	}
	c, _ := a.Alloc(200)
	big, _ := a.Alloc(200_000)
	for name, f := range map[string]func(){
		"bytes outside":     func() { a.Bytes(2*windowUnits, 1) },
		"free outside":      func() { a.Free(2*windowUnits, 1) },
		"free of nothing":   func() { a.Free(c+4, 200) },
		"free off by one":   func() { a.Free(c+1, 200) },
		"free other class":  func() { a.Free(c, 300) },
		"free zero":         func() { a.Free(c, 0) },
		"free inside run":   func() { a.Free(big+pageUnits, 200_000) },
		"free other length": func() { a.Free(big, 100_000) },
		"free twice":        func() { x, _ := a.Alloc(200); a.Free(x, 200); a.Free(x, 200) },
		"free run twice":    func() { x, _ := a.Alloc(1 << 20); a.Free(x, 1<<20); a.Free(x, 1<<20) },
		"window size":       func() { a.AddWindow(make([]byte, WindowSize-1)) },
	} {
		before := a.InUse()
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
		if a.InUse() != before {
			t.Errorf("%s: in use went from %d to %d", name, before, a.InUse())
		}
	}
	a.Free(c, 193)
	a.Free(big, 200_000)
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestFindSpan(t *testing.T) {
	slow := func(free uint64, k int) int {
		for i := 0; i+k <= 64; i++ {
			if free>>i&spanMask(k) == spanMask(k) {
				return i
			}
		}
		return 64
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20_000 {
		free := rng.Uint64() | rng.Uint64() | rng.Uint64()
		k := 1 + rng.IntN(16)
		if got, want := findSpan(free, k), slow(free, k); min(got, 64) != want {
			t.Fatalf("run of %d in %064b: %d, want %d", k, free, got, want)
		}
	}
}

func TestArenaDoesNotAllocate(t *testing.T) {
	a := newTestArena(1)
	if avg := testing.AllocsPerRun(10, func() {
		for i := range 200 {
			c, _ := a.Alloc(1 + i*300)
			a.Free(c, 1+i*300)
		}
	}); avg != 0 {
		t.Errorf("%v allocations for 200 chunks", avg)
	}
}

func BenchmarkArena(b *testing.B) {
	for _, n := range []int{64, 4096, 256 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := newTestArena(1)
			a.Alloc(n) // the page is there, as in steady state
			for range b.N {
				c, _ := a.Alloc(n)
				a.Free(c, n)
			}
		})
	}
	b.Run("64 queue of 1000", func(b *testing.B) {
		a := newTestArena(1)
		var q [1000]uint32
		for i := range q {
			q[i], _ = a.Alloc(64)
		}
		b.ResetTimer()
		for i := range b.N {
			a.Free(q[i%1000], 64)
			q[i%1000], _ = a.Alloc(64)
		}
	})
}
