package metrics

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// More connections that ask nothing than maxConns keep no scraper out. Those beyond the
// limit are closed.
func TestCrowd(t *testing.T) {
	src, b := source(t, noPeers)
	b.Publish(time.Now().UnixNano())
	b.SetState(stats.Running)
	s := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, Handler(src), nil, slog.New(slog.DiscardHandler)) }()
	for range maxConns + 40 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	r, err := http.Get("http://" + s.Addr().String() + "/livez")
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Body.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// closes counts the calls of its Close.
type closes struct {
	net.Conn
	n int
}

func (c *closes) Close() error { c.n++; return nil }

// The connection that has been without a request for longest is closed, never one with a
// request in progress.
func TestCrowdGivesWay(t *testing.T) {
	c := newCrowd()
	var all []*closes
	for i := range 2 * maxConns {
		x := &closes{}
		all = append(all, x)
		if c.changed(x, http.StateNew); i < 3 {
			c.changed(x, http.StateActive)
		}
	}
	closed := 0
	for i, x := range all {
		if closed += x.n; i < 3 && x.n > 0 || i >= maxConns+3 && x.n > 0 {
			t.Errorf("connection %d was closed", i)
		}
	}
	if closed != maxConns || len(c.idle)+len(c.busy) != maxConns {
		t.Errorf("%d closed, %d idle, %d busy", closed, len(c.idle), len(c.busy))
	}
	for _, x := range all {
		c.changed(x, http.StateClosed)
	}
	if len(c.idle)+len(c.busy) != 0 {
		t.Errorf("left: %d idle, %d busy", len(c.idle), len(c.busy))
	}
}

// TestSettle: settle waits for a request in progress and for one that has not come yet, and
// not for a connection that has its answer.
func TestSettle(t *testing.T) {
	c := newCrowd()
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	const long = time.Minute
	c.settle(long) // nobody is there
	c.changed(other, http.StateNew)
	c.changed(other, http.StateActive)
	c.changed(other, http.StateIdle)
	c.settle(long)
	for _, s := range []http.ConnState{http.StateNew, http.StateActive} {
		c.changed(conn, s)
		settled := make(chan struct{})
		go func() { c.settle(long); close(settled) }()
		for waits := false; !waits; { // until settle waits
			c.mu.Lock()
			waits = c.news != nil
			c.mu.Unlock()
		}
		c.changed(other, http.StateIdle) // something else
		select {
		case <-settled:
			t.Fatalf("%v: it did not wait", s)
		default:
		}
		c.changed(conn, http.StateIdle)
		<-settled
	}
	c.changed(conn, http.StateActive)
	c.settle(time.Millisecond) // not for ever
}
