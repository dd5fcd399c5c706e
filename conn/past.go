package conn

// Past is what keeps messages of a lane from arriving twice. A Conn that is
// dropped and made anew for the same lane of the same peer takes it over with
// Config.Past, unless both sides start anew with another Config.Instance.
type Past struct {
	Peer   uint64 // the peer's instance, 0 = never met
	RxLast uint64 // highest sequence received from it
	NextTx uint64 // next sequence to send
}

// Past returns what the connection has to be made anew with. ok is false while
// it holds more than that: the state is not Down, something waits, or the peer
// has yet to hear of a refusal.
func (c *Conn) Past() (p Past, ok bool) {
	if _, idle := c.IdleSince(); !idle || c.state != Down || len(c.refusing) > 0 {
		return p, false
	}
	return Past{c.peer, c.rxLast, c.nextTx}, true
}

// takeOver continues a lane from what a former Conn left.
func (c *Conn) takeOver(p Past) {
	if p.Peer != 0 {
		c.peer, c.rxLast, c.nextTx = p.Peer, p.RxLast, max(c.nextTx, p.NextTx)
	}
}

// IdleSince returns since when nothing was sent or received, for a connection
// that has nothing to do. ok is false if anything is outstanding, half received
// or under way.
func (c *Conn) IdleSince() (since int64, ok bool) {
	if c.wanted() || c.owing > 0 || c.isPending || c.settleAt != 0 {
		return 0, false
	}
	switch c.state {
	case Down:
		return c.since, true
	case Up:
		return c.quiet.heardAt, c.ready && !c.settling && !c.asm.active && c.drained()
	}
	return 0, false
}
