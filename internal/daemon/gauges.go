package daemon

import "github.com/rdsd/rdsd/internal/stats"

// publishStats brings the gauges up to date and copies all counters to the
// statistics mapping. wall is unix time in nanoseconds.
func (e *Engine) publishStats(wall int64) {
	c := &e.st.C
	c[stats.Clients] = uint64(len(e.clients))
	c[stats.Sockets] = uint64(e.sockets())
	c[stats.HeldBytes] = uint64(e.overB)
	var msgs, bytes, ops int
	for _, cl := range e.clients {
		for _, s := range cl.socks {
			if s != nil {
				msgs += s.sndMsgs
				bytes += s.sndBytes
				ops += s.ops
			}
		}
	}
	c[stats.QueuedMessages], c[stats.QueuedBytes], c[stats.OpsOutstanding] = uint64(msgs), uint64(bytes), uint64(ops)
	e.st.Publish(wall)
}

// sockets counts the bound sockets.
func (e *Engine) sockets() int {
	n := 0
	for _, l := range e.localsV {
		n += l.ports.n
	}
	return n
}
