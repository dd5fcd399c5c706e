package conn

// credits count receive buffers, in SENDs. A kernel knows none.
type credits struct {
	left    uint32 // the peer has room for so many
	owed    uint32 // to be granted to the peer
	granted uint32 // the peer may still post so many
	held    bool   // the host has said that none are granted
}

// MinCredits is the least number of receive buffers that a side may grant. The
// last credit is kept for a frame that returns credits; with fewer credits than
// this both sides could stop.
const MinCredits = 4

// maxCredits is the most a peer may grant.
const maxCredits = 1 << 20

// Hold(true) keeps back the credits that are owed to the peer, so that the peer soon
// has none left and waits. Hold(false) ends that. It has no effect on a kernel, which
// uses no credits.
func (c *Conn) Hold(on bool) {
	c.calls.Note()
	if c.credits.held == on {
		return
	}
	c.credits.held = on
	c.dirty = true
}

// grantable is how many credits may be returned now.
func (r *credits) grantable() uint32 {
	if r.held {
		return 0
	}
	return r.owed
}

// give returns how many credits the next frame carries.
func (r *credits) give() uint8 {
	n := min(r.grantable(), 255)
	r.owed -= n
	r.granted += n
	return uint8(n)
}

// came notes a SEND of the peer; false: it had no credit for it.
func (r *credits) came() bool {
	if r.granted == 0 {
		return false
	}
	r.granted--
	r.owed++
	return true
}

// gone forgets the credits of a queue pair.
func (r *credits) gone() { *r = credits{held: r.held} }

// creditsDue is how many buffers must be owed for a frame that carries nothing
// else. At least two, or two idle sides would return each other's forever; and
// less than all but one, or a peer with its last credit would wait forever.
func (c *Conn) creditsDue() uint32 {
	return uint32(max(2, c.cfg.RecvCredits/2))
}

// canSend says whether one SEND may be posted. The last credit is for a frame
// that returns credits: then never are both sides without.
func (c *Conn) canSend() bool {
	if c.room() == 0 {
		c.stats.TxRingFull++
		return false
	}
	if c.credits.left > 1 || c.credits.left == 1 && c.credits.grantable() > 0 {
		return true
	}
	c.stats.TxThrottle++
	return false
}
