package conn

// What a host needs to limit how much one peer gives it to do. Credits limit how
// much is under way at a time, not how often.

// Arrived counts what a peer has sent since the last TakeArrived.
type Arrived struct {
	// Messages are whole messages; duplicates, acks and congestion maps are not. A run
	// counts as its datagrams.
	Messages int
	// Control is work that serves no socket, in units of about one message:
	// internal messages, pings, messages that were refused or found no socket,
	// duplicates, acks that say nothing new. A congestion map counts 8.
	Control int
}

// CongWork is the work of a congestion map of 8 KiB.
const CongWork = 8

// TakeArrived returns what has arrived since the last call of TakeArrived.
func (c *Conn) TakeArrived() (a Arrived) {
	a, c.in.arrived = c.in.arrived, Arrived{}
	return a
}
