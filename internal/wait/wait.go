// Package wait decides how a thread waits for what another process publishes in shared
// memory: it looks again and again, or it blocks until it is woken.
//
// To look again is the faster way where a processor is free: a thread that blocks has to be
// woken, by a system call of who wakes and a change of threads. It is the slower way where
// threads share processors: who looks holds the processor that somebody needs who has work.
// Which of them it is no figure of the machine tells. So a Waiter whose strategy is Auto
// measures both.
package wait

import (
	"fmt"
	"strings"
)

// Strategy says how a thread waits.
type Strategy uint8

// The strategies.
const (
	Auto  Strategy = iota // as Yield or as Block, whichever made waits shorter lately
	Block                 // block at once
	Yield                 // look, and give the processor away after each look, for the window; then block
	Spin                  // look, and keep the processor, for the window; then block
)

var names = [...]string{"auto", "block", "yield", "spin"}

// String is the strategy's name.
func (s Strategy) String() string {
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("strategy %d", uint8(s))
}

// Parse is the strategy of that name.
func Parse(name string) (Strategy, error) {
	for i, n := range names {
		if n == name {
			return Strategy(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no way to wait; there are: %s", name, strings.Join(names[:], ", "))
}

const (
	// slowYield, ns, is the duration above which a yield was slow: who got the processor used
	// up its time slice, which is 700 us and more, and will do so again. A neighbour that
	// yields or blocks itself gives it back long before: 64 to 256 us are usual where four
	// processes yield on two processors.
	slowYield = 700_000
	// yieldPause, ns, is how long nobody yields after a slow yield. Shorter pauses that grow
	// with each slow yield were worse on a busy machine.
	yieldPause = 50_000_000
	// longest is the wait, in windows, above which a wait says nothing about how to wait.
	longest = 4
	// maxVain is how many of these in a row end all looking, until a wait is short again.
	maxVain = 4
)

// Waiter decides how one thread waits, and belongs to it. Times are ns of one clock that is
// never 0. A wait goes from the first Next to Over.
type Waiter struct {
	strategy Strategy
	window   int64
	ways     ways

	since    int64 // start of the wait, 0: there is none
	last     int64 // the last Next
	looks    bool  // this wait looks for the window
	measured bool  // it goes the way that ways.next said
	wasSlow  bool  // it had a slow yield
	yielded  bool  // since last
	until    int64 // before that nobody yields
	slow     uint64
	vain     int // waits in a row that were too long
}

// New returns a Waiter that looks for window ns before it blocks. favoured, Block or Yield,
// is the way that Auto takes unless the other is clearly better.
func New(s Strategy, window int64, favoured Strategy) Waiter {
	if window <= 0 {
		s = Block
	}
	return Waiter{strategy: s, window: window, ways: newWays(favoured)}
}

// Set changes the strategy and the window. What was measured stays.
func (w *Waiter) Set(s Strategy, window int64) {
	w.strategy, w.window = s, window
	if window <= 0 {
		w.strategy = Block
	}
}

// Blocks reports whether Next answers Block whatever the time is.
func (w *Waiter) Blocks() bool { return w.strategy == Block }

// Next is what to do after a look that found nothing: Yield, Spin or Block.
func (w *Waiter) Next(now int64) Strategy {
	if w.strategy == Block {
		return Block
	}
	if w.since == 0 {
		w.begin(now)
	} else {
		w.Back(now)
	}
	w.last = now
	if !w.looks || now-w.since >= w.window {
		return Block
	}
	if w.strategy == Spin {
		return Spin
	}
	w.yielded = true
	return Yield
}

func (w *Waiter) begin(now int64) {
	w.since, w.wasSlow = now, false
	w.measured = w.strategy == Auto && w.vain < maxVain && now >= w.until
	w.looks = w.strategy != Auto || w.measured && w.ways.next() == Yield
}

// Back ends the yield that Next asked for. Who reads the clock after it calls Back, and has
// it judged by itself. Otherwise the following Next or Over ends it, so that the look after
// it counts, too.
func (w *Waiter) Back(now int64) {
	if w.yielded && w.strategy == Auto && now-w.last > slowYield {
		w.until, w.looks, w.wasSlow = now+yieldPause, false, true
		w.slow++
	}
	w.yielded = false
}

// Report is how a Waiter waits, and what it has measured.
type Report struct {
	Strategy Strategy
	Way      Strategy // in use: Block, Yield or Spin
	Look     int64    // mean of the waits that yield, ns; 0: not measured
	Block    int64    // mean of the waits that block at once, ns; 0: not measured
	Slow     uint64   // slow yields
}

// Report says how w waits.
func (w *Waiter) Report() Report {
	r := Report{Strategy: w.strategy, Way: w.strategy, Look: *w.ways.of(Yield), Block: *w.ways.of(Block), Slow: w.slow}
	if w.strategy == Auto {
		r.Way = w.ways.way
	}
	return r
}

// Waits reports whether a wait has begun and is not over.
func (w *Waiter) Waits() bool { return w.since != 0 }

// Over ends the wait, if there is one.
func (w *Waiter) Over(now int64) {
	if w.since == 0 {
		return
	}
	w.Back(now)
	d := now - w.since
	w.since = 0
	switch most := longest * w.window; {
	case w.wasSlow:
		w.ways.took(most)
	case d >= most:
		w.vain = min(w.vain+1, maxVain)
	case w.vain < maxVain || d < 2*w.window:
		w.vain = 0
		if w.measured {
			w.ways.took(d)
		}
	}
}
