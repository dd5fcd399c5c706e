package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
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
	mute map[net.Conn]bool // those of idle that have not asked anything yet
	come int               // connections that were accepted and that the HTTP server is about to count
	news chan struct{}     // closed at the next change, nil if nobody waits
}

// counted is a listener whose connections c knows from the moment at which they are accepted.
type counted struct {
	net.Listener
	c *crowd
}

// Accept implements net.Listener.
func (l counted) Accept() (conn net.Conn, err error) {
	took := func(c net.Conn) {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		l.c.come++
		conn = c
	}
	// A listener that can be shut is not shut before took has returned.
	if g, ok := l.Listener.(interface{ AcceptTo(f func(net.Conn)) error }); ok {
		err = g.AcceptTo(took)
		return conn, err
	}
	c, err := l.Listener.Accept()
	if err == nil {
		took(c)
	}
	return conn, err
}

func newCrowd() *crowd { return &crowd{busy: map[net.Conn]bool{}, mute: map[net.Conn]bool{}} }

// settle waits until each connection that was accepted has its answer, at most so long.
func (c *crowd) settle(most time.Duration) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		c.mu.Lock()
		if len(c.busy)+len(c.mute)+c.come == 0 {
			c.mu.Unlock()
			return
		}
		if c.news == nil {
			c.news = make(chan struct{})
		}
		news := c.news
		c.mu.Unlock()
		select {
		case <-news:
		case <-late.C:
			return
		}
	}
}

// changed is http.Server.ConnState.
func (c *crowd) changed(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, conn)
	delete(c.mute, conn)
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
	c.idle = slices.DeleteFunc(c.idle, func(x net.Conn) bool { return x == conn })
	switch s {
	case http.StateNew, http.StateIdle:
		c.idle = append(c.idle, conn)
		if s == http.StateNew {
			c.come = max(0, c.come-1)
			c.mute[conn] = true
		}
	case http.StateActive:
		c.busy[conn] = true
	}
	if len(c.busy)+len(c.idle) > maxConns && len(c.idle) > 0 {
		c.idle[0].Close() // the server then calls changed, which takes it off
		c.idle = c.idle[1:]
	}
}
