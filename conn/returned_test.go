package conn

import "slices"

// Hosts of tests keep messages for ports that are stopped as Conn.Send asks for.

// send passes m to c, or keeps it while its port is stopped.
func (b *baseHost) send(c *Conn, m *Msg) {
	if m.Internal == 0 && (c.Stopped(m.DPort) || slices.ContainsFunc(b.away, func(x *Msg) bool { return x.DPort == m.DPort })) {
		b.away = append(b.away, m)
		return
	}
	c.Send(m)
}

// returned keeps m, which has ended with Returned. The last one comes first.
func (b *baseHost) returned(m *Msg) { b.away = slices.Insert(b.away, 0, m) }

// resend passes to c what is for ports that are not stopped any more.
func (b *baseHost) resend(c *Conn) (sent bool) {
	b.away = slices.DeleteFunc(b.away, func(m *Msg) bool {
		free := !c.Stopped(m.DPort)
		if free {
			c.Send(m)
			sent = true
		}
		return free
	})
	return sent
}
