package conn

// redial says when the next attempt to connect is made, of a Conn or of a TCP lane.
type redial struct {
	ceiling int64 // of the next delay, 0: at once
	at      int64 // 0: when there is something to send
}

// later sets the time of the next attempt: after a random delay below a ceiling that
// doubles up to most (net/rds/threads.c rds_queue_reconnect).
func (r *redial) later(now int64, random uint64, most int64) {
	r.at = now + 1 + int64(random%uint64(r.ceiling))
	r.ceiling = min(2*r.ceiling, most)
}
