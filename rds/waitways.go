package rds

import (
	"time"

	"github.com/rdsd/rdsd/internal/wait"
)

// Wait says how a goroutine waits for the daemon: whether it looks into the shared memory
// again and again before it blocks, and who may use the processor meanwhile. While it
// looks it keeps its thread and one of the GOMAXPROCS. Of the goroutines of a Client one
// looks for all. It does not look, whatever the way, while other goroutines of the process
// want the processor.
type Wait uint8

// The ways to wait.
const (
	// WaitAuto goes the way that makes waits shorter, yield or block. It tries the other
	// one every 128 to 2,048 waits for 16 waits. It blocks if both are as short, after
	// waits that were much longer than the window, and for 50 ms after another thread
	// kept a processor that was yielded to it for more than 700 µs.
	WaitAuto Wait = iota
	// WaitBlock blocks at once. It costs no processor time, and a wake-up for each wait:
	// a system call of the daemon, and the time until the thread runs.
	WaitBlock
	// WaitYield looks for Options.Spin and calls sched_yield(2) after each look. It costs
	// up to that much processor time for each wait, of which other threads that can run
	// get their part. Beside threads that use up their time slices a yield can take
	// milliseconds.
	WaitYield
	// WaitSpin looks for Options.Spin and keeps the processor. It is the fastest where
	// there is a processor that nobody else needs, and the slowest elsewhere.
	WaitSpin
)

// String is the way's name in configurations: auto, block, yield, spin.
func (w Wait) String() string { return w.strategy().String() }

// MarshalText is String, for flags and configurations.
func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w to the way of that name. An error names those there are.
func (w *Wait) UnmarshalText(name []byte) error {
	s, err := wait.Parse(string(name))
	if err == nil {
		*w = Wait(s)
	}
	return err
}

func (w Wait) strategy() wait.Strategy { return wait.Strategy(w) }

// window is how long a waiting goroutine looks, if the daemon suggests that time. What is
// less than a microsecond is not worth a system call.
func (o *Options) window(suggested time.Duration) time.Duration {
	d := o.Spin
	if d == 0 {
		d = suggested
	}
	if d < time.Microsecond {
		return 0
	}
	return d
}
