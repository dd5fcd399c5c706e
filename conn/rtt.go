package conn

// RTT is what a connection has measured of the time from the post of a message that asks
// for an ack until its ack is handled. The peer acks such a message in the turn in which
// it takes it in, so the time has the way there and back, the queues between and a turn of
// each daemon, but no application. Times are nanoseconds.
type RTT struct {
	Last, Smoothed, Least int64
	At                    int64 // when Last was measured, 0: never
}

// rtt measures: one message at a time, so that a message costs one comparison. A message
// with an operation is not measured: its ack comes when its data was moved.
type rtt struct {
	seq  uint64 // of the message that is measured, 0: none
	from int64  // when it was posted
	RTT
}

// begin measures the message with seq, which is posted and asks for an ack. No other one
// is measured.
func (r *rtt) begin(seq uint64, now int64) { r.seq, r.from = seq, now }

// acked takes the ack of the messages up to seq.
func (r *rtt) acked(seq uint64, now int64) {
	if r.seq == 0 || seq < r.seq {
		return
	}
	r.seq = 0
	d := max(now-r.from, 1)
	if r.At == 0 {
		r.Smoothed, r.Least = d, d
	}
	r.Smoothed += (d - r.Smoothed) / 8 // as TCP: RFC 6298, section 2
	r.Least = min(r.Least, d)
	r.Last, r.At = d, now
}

// Probe asks an idle peer for an ack, so that RTT is not much older than now. While something
// is outstanding, or the connection is not ready, it returns false, and the next message asks.
// Nothing is posted before Flush.
func (c *Conn) Probe() bool {
	c.calls.Note()
	if !c.Ready() || c.outstanding() || c.own.N > 0 || c.quiet.probe != nil {
		c.out.untilAsk = 0
		return false
	}
	c.quiet.probe = c.ask()
	return true
}
