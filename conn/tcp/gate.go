package tcp

// gate keeps messages of one socket in order when the lanes become known: what it
// sent before went on the first lane, and the rest may belong to another one.
type gate struct {
	shut  bool   // other lanes than the first wait until its backlog is through
	below uint64 // the backlog: sequences below this one
	until int64  // when its acks are enough
}

// gateNs is how long the gate waits for the answer to a probe.
const gateNs = 1_000_000_000

// waits says that messages of this lane have to wait for earlier ones of the
// first: those its sockets sent before the lanes were known. The answer to a
// probe behind them says that the peer has taken them; if it answers none, acks
// and some time have to do.
func (l *lane) waits() bool {
	c := l.c
	if !c.gate.shut || l.n == 0 {
		return false
	}
	if c.now < c.gate.until {
		return true
	}
	first := &c.lanes[0]
	m := first.out.unacked.Head
	if m == nil {
		m = first.out.frag
	}
	if m == nil {
		m = first.out.queue.Head
	}
	if m != nil && m.Track.Seq < c.gate.below {
		return true
	}
	c.gate.shut = false
	return false
}
