package conn

// Past is what a Conn knows of the messages that were exchanged. A Conn that is
// dropped and made anew for the same lane of the same peer needs it as Config.Past,
// so that no message arrives twice, unless it has another Config.Instance.
type Past struct {
	Peer   uint64 // the peer's instance, 0 = never met
	RxLast uint64 // highest sequence received from it
	NextTx uint64 // next sequence to send
}

// Past returns what a Conn that takes this one's place needs. ok is false while the
// Conn must not be dropped: it is not Down, a message waits, or the peer has yet to
// hear of a refusal.
func (c *Conn) Past() (p Past, ok bool) {
	if _, idle := c.IdleSince(); !idle || c.state != Down || len(c.in.refusing)+c.own.N > 0 || c.outstanding() {
		return p, false
	}
	return Past{c.peer, c.in.last, c.out.nextTx}, true
}

// takeOver continues a lane from what a former Conn left.
func (c *Conn) takeOver(p Past) {
	if p.Peer != 0 {
		c.peer, c.in.last, c.out.nextTx = p.Peer, p.RxLast, max(c.out.nextTx, p.NextTx)
	}
}

// IdleSince returns when an idle connection sent or received last. ok is false if
// the connection is not idle: something waits, is outstanding or half received. One that
// is Down may have what is only owed to the peer.
func (c *Conn) IdleSince() (since int64, ok bool) {
	if !c.closed && c.needed() || c.halt.again > 0 || c.request.waits || c.settling.expires != 0 {
		return 0, false
	}
	switch c.state {
	case Down:
		return c.since, true
	case Up:
		return c.quiet.heardAt, c.out.n()+c.own.N == 0 && c.link.ready && !c.settling.on && !c.in.asm.active && c.sq.emptied()
	}
	return 0, false
}
