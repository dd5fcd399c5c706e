package rdstcp

// Hold has nothing read from the connection until it is called with false, or
// Finish is: what had come by then has to be taken before the end.
func (c *Conn) Hold(on bool) {
	if c.held == on || on && (c.finished || c.fd < 0) {
		return
	}
	c.held = on
	if on {
		c.n.holds++
		return
	}
	c.n.holds--
	c.n.news.Store(true) // a new connection may have waited for it
	if c.more && c.fd >= 0 {
		c.more = false
		c.n.wants(c)
	}
}
