package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConns bounds the connections to the listener, because every process of the host can
// open some.
const maxConns = 64

// crowd counts the connections. Beyond maxConns it closes the connection that has been
// without a request for longest, so that connections that ask nothing keep no scraper out.
// If all have a request in progress, it closes the new one.
type crowd struct {
	mu   sync.Mutex
	idle []net.Conn // longest first
	busy map[net.Conn]bool
}

// changed is http.Server.ConnState.
func (c *crowd) changed(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, conn)
	c.idle = slices.DeleteFunc(c.idle, func(x net.Conn) bool { return x == conn })
	switch s {
	case http.StateNew, http.StateIdle:
		c.idle = append(c.idle, conn)
	case http.StateActive:
		c.busy[conn] = true
	}
	if len(c.busy)+len(c.idle) > maxConns && len(c.idle) > 0 {
		c.idle[0].Close() // the server then calls changed, which takes it off
		c.idle = c.idle[1:]
	}
}
