// Package timer has the times of a connection: when something is due, and when it connects again.
package timer

// Due reports whether a timer set to t, 0 for none, has to go off.
func Due(t, now int64) bool { return t != 0 && t <= now }

// Sooner returns the earlier of two times, of which 0 is none.
func Sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Redial says when the next attempt to connect is made, of a conn.Conn or of a lane of a tcp.Conn.
type Redial struct {
	Ceiling int64 // of the next delay, 0: at once
	At      int64 // 0: when there is something to send
}

// Later sets the time of the next attempt: after a random delay below a ceiling that
// doubles up to most (net/rds/threads.c rds_queue_reconnect).
func (r *Redial) Later(now int64, random uint64, most int64) {
	r.At = now + 1 + int64(random%uint64(r.Ceiling))
	r.Ceiling = min(2*r.Ceiling, most)
}
