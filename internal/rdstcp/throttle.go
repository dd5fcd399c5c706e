package rdstcp

// Hold stops reading from the connection until Hold(false) or Finish. Finish lets reading
// go on because everything that had arrived has to be read before the end.
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
