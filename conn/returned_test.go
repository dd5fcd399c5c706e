package conn

import (
	"slices"

	"github.com/rdsd/rdsd/conn/msg"
)

// Hosts of tests keep messages for ports that are stopped as Conn.Send asks for.

// send passes m to c, or keeps it while its port is stopped.
func (b *baseHost) send(c *Conn, m *msg.Msg) {
	if m.Internal == 0 && (c.Stopped(m.DPort) || slices.ContainsFunc(b.away, func(x *msg.Msg) bool { return x.DPort == m.DPort })) {
		b.away = append(b.away, m)
		return
	}
	c.Send(m)
}

// returned keeps m, which has ended with Returned. The last one comes first.
func (b *baseHost) returned(m *msg.Msg) { b.away = slices.Insert(b.away, 0, m) }

// resend passes to c what is for ports that are not stopped any more.
func (b *baseHost) resend(c *Conn) (sent bool) {
	b.away = slices.DeleteFunc(b.away, func(m *msg.Msg) bool {
		free := !c.Stopped(m.DPort)
		if free {
			c.Send(m)
			sent = true
		}
		return free
	})
	return sent
}
