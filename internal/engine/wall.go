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

// moment is the engine's time.
type moment struct {
	now    int64 // monotonic ns, when the current turn began
	wall   Wall  // the same
	behind int64 // ns that now is behind the time of Turn's caller

	read func() int64 // returns the caller's time at this moment. nil: time stands still in a turn
	came int64        // see arrived. 0: not read yet
}

// KeepTime has the engine call clock for what has to be more exact than the time at which the turn
// began: when messages arrived, and events of traces. clock returns the time as Turn gets it. Before
// the first turn.
func (m *moment) KeepTime(clock func() int64) { m.read = clock }

// present is the engine's time at this moment.
func (m *moment) present() int64 {
	if m.read == nil {
		return m.now
	}
	return m.read() - m.behind
}

// looks notes that what the engine takes in from here on may have been sent, and may have come, at
// any time until now. Each place that takes something in calls looks.
func (m *moment) looks() { m.came = 0 }

// arrived is when what the engine has just taken in had arrived. It lies behind the last call of
// looks. The clock is read once for all that arrived since then.
func (m *moment) arrived() int64 {
	if m.came == 0 {
		m.came = m.present()
	}
	return m.came
}

// wallAt is when the engine's monotonic time was t.
func (m *moment) wallAt(t int64) Wall { return m.wall + Wall(t-m.now) }

// at is wallAt as package time has it.
func (m *moment) at(t int64) time.Time { return m.wallAt(t).Time() }
