package metrics

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

// pipes is a listener whose connections keep nothing for a side that does not read.
type pipes struct {
	calls chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

// dial returns the client's side of a new connection.
func (p *pipes) dial(t *testing.T) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	p.calls <- far
	return near
}

const probe = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

// serve runs a server on pipes.
func serve(t *testing.T) (*pipes, *crowd) {
	src, b := source(t, noPeers)
	b.Publish(time.Now().UnixNano())
	b.SetState(stats.Running)
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	s := NewServer(p)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, Handler(src), nil, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		if stop(); <-done != nil {
			t.Error("the server failed")
		}
	})
	return p, s.crowd
}

// stalled waits until the server waits for so many clients that have asked. Those that read have
// their answers then.
func (c *crowd) stalled(n int, reads bool) {
	for got := -1; got != n; runtime.Gosched() {
		c.mu.Lock()
		got = 0
		for _, g := range c.all {
			if g.asked && (reads || !g.waiting.IsZero()) {
				got++
			}
		}
		c.mu.Unlock()
	}
}

// More clients than maxConns that ask nothing, that ask again and again and read no answer, or
// that announce a body and do not send it, keep no probe out.
func TestCrowd(t *testing.T) {
	for name, ask := range map[string]string{"silent": "", "unread": probe + probe + probe,
		"bodies": "POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			p, c := serve(t)
			for range maxConns + 10 {
				conn := p.dial(t)
				go func() { // ends when conn is closed
					_, _ = io.WriteString(conn, ask)
					if name == "bodies" {
						_, _ = io.Copy(io.Discard, conn)
					}
				}()
			}
			if ask != "" {
				c.stalled(maxConns, name == "bodies")
			}
			for range 10 {
				conn := p.dial(t)
				if _, err := io.WriteString(conn, probe); err != nil {
					t.Fatal(err)
				}
				r, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || r.StatusCode != http.StatusOK {
					t.Fatalf("%+v, %v", r, err)
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil || !r.Close {
					t.Fatalf("%v, the connection stays: %v", err, !r.Close)
				}
			}
		})
	}
}

// A client that takes nothing of its answer loses its connection.
func TestUnread(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	c := &crowd{}
	g := c.enter(far)
	if err := g.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if err := g.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// closes counts the calls of its Close.
type closes struct {
	net.Conn
	n int
}

func (c *closes) Close() error { c.n++; return nil }

// The connection gives way for whose client the server has waited for longest, never one that
// is about to be answered.
func TestCrowdGivesWay(t *testing.T) {
	c := &crowd{}
	var all []*closes
	var guests []*guest
	enter := func() int {
		x := &closes{}
		all, guests = append(all, x), append(guests, c.enter(x))
		c.makeRoom()
		return len(all) - 1
	}
	asked := func(i int) { hasAsked(context.WithValue(t.Context(), guestKey{}, net.Conn(guests[i]))) }
	closed := func() (list []int) {
		for i, x := range all {
			if x.n > 0 {
				list = append(list, i)
				x.n = 0
			}
		}
		return list
	}
	want := func(when string, i int) {
		t.Helper()
		if got := closed(); len(got) != 1 || got[0] != i || len(c.all) != maxConns {
			t.Errorf("%s: closed %v, want %d; %d are left", when, got, i, len(c.all))
		}
	}
	for range maxConns {
		enter()
	}
	for i := range 3 {
		asked(i)
	}
	c.mu.Lock()
	guests[3].waiting = time.Now()
	for _, g := range guests[4:] {
		g.waiting = guests[3].waiting.Add(time.Millisecond)
	}
	x, rest := c.first()
	c.mu.Unlock()
	if x != guests[3] || rest <= 0 {
		t.Errorf("one that has just come has %v to ask", rest)
	}
	enter()
	want("three are about to be answered", 3)
	guests[2].waits(time.Now().Add(-time.Hour))
	enter()
	want("one of them has not read for an hour", 2)
	for i := range all {
		asked(i)
	}
	entered := make(chan struct{})
	go func() { enter(); close(entered) }()
	for waits := false; !waits; runtime.Gosched() {
		c.mu.Lock()
		waits = c.news != nil
		c.mu.Unlock()
	}
	if list := closed(); len(list) > 0 {
		t.Errorf("all are about to be answered: closed %v", list)
	}
	_ = guests[0].Close()
	<-entered
	want("one was answered", 0)

	for _, g := range guests {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(c.all) != 0 {
		t.Errorf("left: %d", len(c.all))
	}
}

// TestAnsweredGivesWay: whose request was answered is waited for again, whatever of the request is still to come.
func TestAnsweredGivesWay(t *testing.T) {
	c := &crowd{}
	var answered []func()
	for range 2 {
		answered = append(answered, hasAsked(context.WithValue(t.Context(), guestKey{}, net.Conn(c.enter(&closes{})))))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x, _ := c.first(); x != nil {
		t.Error("one that is about to be answered gives way")
	}
	c.mu.Unlock()
	answered[1]()
	c.mu.Lock()
	if x, _ := c.first(); x != c.all[1] {
		t.Errorf("%+v gives way, not the one that was answered", x)
	}
}

// shuttable is a listener that can be shut, as the daemon's: taking counts the connections that are being taken.
type shuttable struct {
	net.Listener
	taking atomic.Int32
}

func (s *shuttable) AcceptTo(f func(net.Conn)) error {
	s.taking.Add(1)
	defer s.taking.Add(-1)
	f(&closes{})
	return nil
}

// TestCrowdHoldsNoGate: while the server waits for room among clients that are about to be answered, it
// is not taking a connection. Who shuts the listener for a planned restart would wait for as long as
// these clients like.
func TestCrowdHoldsNoGate(t *testing.T) {
	c := &crowd{}
	gate := &shuttable{}
	l := counted{gate, c}
	accept := func() *guest {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		g := conn.(*guest)
		hasAsked(context.WithValue(t.Context(), guestKey{}, net.Conn(g)))
		return g
	}
	var all []*guest
	for range maxConns {
		all = append(all, accept())
	}
	accepted := make(chan *guest, 2)
	go func() { // there is no room for the second
		accepted <- accept()
		accepted <- accept()
	}()
	for waits := false; !waits; runtime.Gosched() {
		c.mu.Lock()
		waits = c.news != nil
		c.mu.Unlock()
	}
	if n := gate.taking.Load(); n != 0 {
		t.Errorf("%d connections are being taken while there is no room", n)
	}
	_, _ = all[0].Close(), all[1].Close()
	<-accepted
	<-accepted
}

// TestSettle: settle waits until each connection that was accepted is closed, whether it has
// asked or not.
func TestSettle(t *testing.T) {
	c := &crowd{}
	const long = time.Minute
	c.settle(long) // nobody is there
	a, b := c.enter(&closes{}), c.enter(&closes{})
	hasAsked(context.WithValue(t.Context(), guestKey{}, net.Conn(a)))
	settled := make(chan struct{})
	go func() { c.settle(long); close(settled) }()
	for _, g := range []*guest{a, b} {
		for waits := false; !waits; runtime.Gosched() { // until settle waits
			c.mu.Lock()
			waits = c.news != nil
			c.mu.Unlock()
		}
		select {
		case <-settled:
			t.Fatal("it did not wait")
		default:
		}
		_ = g.Close()
	}
	<-settled
	c.enter(&closes{})
	c.settle(time.Millisecond) // not for ever
}
