package metrics

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// maxConns bounds the connections to the listener, because every process of the host can
	// open some.
	maxConns = 64
	// writeStall is how long a client may take nothing of its answer.
	writeStall = time.Second
	// soon is how long each connection has, at least, to ask and to take its answer. Until then
	// new ones wait to be accepted.
	soon = 20 * time.Millisecond
)

// crowd knows the connections from the moment at which they are accepted. Each has one
// request. Beyond maxConns, before the next one is accepted, the connection gives way whose client has kept the server waiting
// for longest: by asking nothing, by taking nothing of its answer, or by not sending the body
// that its request has announced. So such clients keep no probe and no scraper out. A connection
// that the server is about to answer stays, and so does one that has just come: others that come
// at a high rate must not close it before its request is read.
type crowd struct {
	mu   sync.Mutex
	all  []*guest      // the oldest first
	news chan struct{} // closed when a connection leaves, nil if nobody waits
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	c       *crowd
	until   time.Time // SetWriteDeadline; used by the goroutine that writes
	asked   bool      // its request has come; guarded by c.mu
	waiting time.Time // since when the server waits for the client, zero: it does not; guarded by c.mu
}

// counted is a listener whose connections are in c.
type counted struct {
	net.Listener
	c *crowd
}

// Accept implements net.Listener. It waits for room before it takes a connection, because whoever
// shuts the listener, for a planned restart, waits for the taking.
func (l counted) Accept() (conn net.Conn, err error) {
	l.c.makeRoom()
	took := func(c net.Conn) { conn = l.c.enter(c) }
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

// enter adds a connection. It waits for nothing.
func (c *crowd) enter(conn net.Conn) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &guest{Conn: conn, c: c, waiting: time.Now()}
	c.all = append(c.all, g)
	return g
}

// makeRoom has connections give way until there are not more than maxConns. If all of them are about to be
// answered, it waits until one was.
func (c *crowd) makeRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.all) > maxConns {
		x, rest := c.first()
		if rest <= 0 {
			c.leave(x)
			_ = x.Conn.Close() // the HTTP server drops it when it notices
			continue
		}
		late := time.NewTimer(rest)
		news := c.hear()
		c.mu.Unlock()
		select {
		case <-news:
		case <-late.C:
		}
		late.Stop()
		c.mu.Lock()
	}
}

// first returns the guest that is the next to give way, and in how long. If the server waits for no
// client, it returns nil, and after how long to look again. Guarded by mu.
func (c *crowd) first() (x *guest, rest time.Duration) {
	for _, o := range c.all {
		if !o.waiting.IsZero() && (x == nil || o.waiting.Before(x.waiting)) {
			x = o
		}
	}
	if x == nil {
		return nil, soon
	}
	return x, soon - time.Since(x.waiting)
}

// hear returns a channel that is closed when a connection leaves. Guarded by mu.
func (c *crowd) hear() <-chan struct{} {
	if c.news == nil {
		c.news = make(chan struct{})
	}
	return c.news
}

// leave takes g off. Guarded by mu.
func (c *crowd) leave(g *guest) {
	if i := slices.Index(c.all, g); i >= 0 {
		c.all = slices.Delete(c.all, i, i+1)
		if c.news != nil {
			close(c.news)
			c.news = nil
		}
	}
}

// settle waits until each connection that was accepted has its answer, at most so long.
func (c *crowd) settle(most time.Duration) {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		c.mu.Lock()
		if len(c.all) == 0 {
			c.mu.Unlock()
			return
		}
		news := c.hear()
		c.mu.Unlock()
		select {
		case <-news:
		case <-late.C:
			return
		}
	}
}

// guestKey is the key of a request's guest in its context.
type guestKey struct{}

// withGuest is http.Server.ConnContext.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, conn)
}

// hasAsked notes that the request with this context has come. answered notes that its handler
// has returned: the HTTP server then waits for the client alone.
func hasAsked(ctx context.Context) (answered func()) {
	g, ok := ctx.Value(guestKey{}).(*guest)
	if !ok {
		return func() {}
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.asked, g.waiting = true, time.Time{}
	return func() {
		g.waits(time.Now())
	}
}

// SetWriteDeadline implements net.Conn.
func (g *guest) SetWriteDeadline(t time.Time) error {
	g.until = t
	return g.Conn.SetWriteDeadline(t)
}

// Write implements net.Conn. It fails if the client takes nothing for writeStall.
func (g *guest) Write(b []byte) (int, error) {
	now := time.Now()
	end := now.Add(writeStall)
	if !g.until.IsZero() && g.until.Before(end) {
		end = g.until
	}
	if err := g.Conn.SetWriteDeadline(end); err != nil {
		return 0, err
	}
	was := g.waits(now)
	n, err := g.Conn.Write(b)
	g.waits(was)
	return n, err
}

// waits notes since when the server waits for g's client, and returns since when it did.
// Without a request it has waited since it accepted g.
func (g *guest) waits(since time.Time) (was time.Time) {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if was = g.waiting; g.asked {
		g.waiting = since
	}
	return was
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.c.mu.Lock()
	g.c.leave(g)
	g.c.mu.Unlock()
	return g.Conn.Close()
}
