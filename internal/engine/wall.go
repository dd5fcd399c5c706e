package engine

import "time"

// Wall is a moment by the wall clock, in ns of unix time. It is for people and for other
// programs to read, and so is the age of a message that its application has not read. All
// other times here are monotonic, in ns since a moment that the caller of Turn chooses.
// What is due goes by those.
type Wall int64

// Time is w as package time has it.
func (w Wall) Time() time.Time { return time.Unix(0, int64(w)) }

// age is how long before now w was, as far as the clock was not set back.
func (w Wall) age(now Wall) time.Duration { return time.Duration(max(0, now-w)) }

// ms is w in ms, modulo 2^32.
func (w Wall) ms() uint32 { return uint32(w / 1_000_000) }

// moment is when the current turn is.
type moment struct {
	now  int64 // monotonic ns
	wall Wall
}

// epoch is when the engine's monotonic time was 0.
func (m *moment) epoch() Wall { return m.wall - Wall(m.now) }

// at is when the engine's monotonic time was t.
func (m *moment) at(t int64) time.Time { return (m.epoch() + Wall(t)).Time() }
