package rdstcp

// Hold has nothing read from the connection until it is called with false, or
// Finish is: what had come by then has to be taken before the end.
func (c *Conn) Hold(on bool) {
	if c.held == on || on && c.finished {
		return
	}
	c.held = on
	if !on && c.more && c.fd >= 0 {
		c.more = false
		c.n.wants(c)
	}
}
