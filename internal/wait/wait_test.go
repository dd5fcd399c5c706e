package wait

import (
	"math/rand/v2"
	"testing"
)

const us = 1000

// thread is a thread that waits, and how long its waits last by the way it goes.
type thread struct {
	w      Waiter
	now    int64
	yields int // yields of the last wait
	yield  int64
}

// wait has a wait of d ns if it looks, of block ns if it blocks at once. It reports whether
// it has looked.
func (t *thread) wait(look, block int64) (looked bool) {
	t.now += us
	start := t.now
	t.yields = 0
	for {
		switch t.w.Next(t.now) {
		case Yield, Spin:
			t.yields++
			t.now += t.yield
			if t.now-start >= look {
				t.w.Over(t.now)
				return true
			}
			continue
		}
		t.now = max(t.now, start+block)
		t.w.Over(t.now)
		return t.yields > 0
	}
}

func newThread(s, favoured Strategy) *thread {
	return &thread{w: New(s, 50*us, favoured), now: 1, yield: us}
}

// looks is how many of n waits look.
func (t *thread) looks(n int, look, block int64) (looked int) {
	for range n {
		if t.wait(look, block) {
			looked++
		}
	}
	return looked
}

func TestForced(t *testing.T) {
	if h := newThread(Block, Block); h.looks(100, 1, us) != 0 || !h.w.Blocks() {
		t.Error("block looks")
	}
	for _, s := range []Strategy{Yield, Spin} {
		h := newThread(s, Block)
		if got := h.w.Next(h.now); got != s {
			t.Errorf("%v: %v", s, got)
		}
		h.w.Over(h.now)
		if h.looks(1000, 300*us, 300*us) != 1000 {
			t.Errorf("%v: not each wait looks", s)
		}
		if h.yields != 50 {
			t.Errorf("%v: %d looks in the window, want 50", s, h.yields)
		}
	}
	if w := New(Yield, 0, Block); w.Next(1) != Block {
		t.Error("looks without a window")
	}
}

// TestShorter: Auto goes the way that is clearly shorter, whichever it favours, and the
// favoured way if none is.
func TestShorter(t *testing.T) {
	for _, favoured := range []Strategy{Block, Yield} {
		for _, c := range []struct {
			look, block int64
			want        Strategy
		}{
			{5 * us, 25 * us, Yield},
			{40 * us, 15 * us, Block},
			{28 * us, 26 * us, favoured},
			{26 * us, 28 * us, favoured},
		} {
			h := newThread(Auto, favoured)
			h.looks(4*batch, c.look, c.block)
			n := h.looks(10*mostRest, c.look, c.block)
			if c.want == Block {
				n = 10*mostRest - n
			}
			if n < 10*mostRest*98/100 {
				t.Errorf("favours %v: %d of %d waits %v, though looking takes %d us and blocking %d", favoured, n, 10*mostRest, c.want, c.look/us, c.block/us)
			}
		}
	}
}

// TestChanges: when the shorter way becomes the longer one, Auto takes the other.
func TestChanges(t *testing.T) {
	h := newThread(Auto, Block)
	for range 5 {
		h.looks(8*mostRest, 40*us, 15*us)
		if n := h.looks(1000, 40*us, 15*us); n > 2*batch {
			t.Errorf("%d of 1000 waits look though blocking is shorter", n)
		}
		h.looks(8*mostRest, 5*us, 25*us)
		if n := h.looks(1000, 5*us, 25*us); n < 1000-2*batch {
			t.Errorf("%d of 1000 waits look though looking is shorter", n)
		}
	}
}

// TestNoise: some waits that last much longer do not change the way.
func TestNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := newThread(Auto, Block)
	n := 0
	for range 100_000 {
		look, block := int64(5*us), int64(25*us)
		if r.IntN(50) == 0 {
			look, block = 150*us, 150*us
		}
		if h.wait(look, block) {
			n++
		}
	}
	if n < 95_000 {
		t.Errorf("%d of 100000 waits look", n)
	}
}

// TestIdle: long waits end all looking, and a short one begins it again.
func TestIdle(t *testing.T) {
	for _, favoured := range []Strategy{Block, Yield} {
		h := newThread(Auto, favoured)
		h.looks(10*batch, 5*us, 25*us)
		h.looks(maxVain, 1e9, 1e9)
		if n := h.looks(10_000, 1e9, 1e9); n != 0 {
			t.Errorf("%d of 10000 long waits look", n)
		}
		h.looks(1, 25*us, 25*us)
		if n := h.looks(100, 5*us, 25*us); n < 80 {
			t.Errorf("%d of 100 short waits look after it was idle", n)
		}
	}
}

// TestSlowYield: a yield in which another thread used up its time slice ends the look, and
// nobody yields for a while. The waits that had one count as long.
func TestSlowYield(t *testing.T) {
	h := newThread(Auto, Yield)
	h.yield = slowYield + us
	h.wait(1<<40, 900*us)
	if h.yields != 1 || h.w.slow != 1 {
		t.Fatalf("%d yields, %d of them slow", h.yields, h.w.slow)
	}
	until := h.w.until
	for h.now < until-20*us {
		if h.wait(5*us, 15*us) {
			t.Fatal("yields in the pause")
		}
	}
	h.now, h.yield = until, us
	if !h.wait(5*us, 15*us) {
		t.Error("the pause does not end")
	}
	h = newThread(Yield, Yield)
	h.yield = slowYield + us
	if h.looks(10, 1<<40, 900*us) != 10 {
		t.Error("who is told to yield does not after a slow yield")
	}
	h = newThread(Auto, Yield)
	for i := range 4 * batch * firstRest {
		h.yield = us
		if i%2 == 0 {
			h.yield = slowYield + us
		}
		h.wait(5*us, 25*us)
		h.now += yieldPause
	}
	if h.w.ways.way != Block {
		t.Error("goes on yielding though every second yield is slow")
	}
}

// TestBack: a yield that Back has ended is judged by itself, whatever the look after it takes.
func TestBack(t *testing.T) {
	w := New(Auto, 50*us, Yield)
	for now := int64(1); now < 40*us; now += 2 * us {
		if w.Next(now) != Yield {
			t.Fatal("does not yield")
		}
		w.Back(now + us)
	}
	w.Over(10 * slowYield) // a long look has found something
	if w.slow != 0 {
		t.Error("a long look was taken for a slow yield")
	}
	w.Next(20 * slowYield)
	w.Back(22 * slowYield)
	if w.slow != 1 || w.Next(22*slowYield+us) != Block {
		t.Error("a slow yield was not noticed")
	}
}

func TestNames(t *testing.T) {
	for s := Auto; s <= Spin; s++ {
		if got, err := Parse(s.String()); got != s || err != nil {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	if _, err := Parse("busy"); err == nil || Strategy(9).String() != "strategy 9" {
		t.Error("a name that is none")
	}
}
