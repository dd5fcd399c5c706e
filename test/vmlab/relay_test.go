package vmlab

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes one TCP connection on, until it resets both sides of it.
type relay struct {
	port int
	mu   sync.Mutex
	c    []*net.TCPConn
	done bool // was reset
}

// newRelay makes a relay to a port of 127.0.0.1.
func newRelay(t *testing.T, to int) *relay {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{port: l.Addr().(*net.TCPAddr).Port}
	var ended sync.WaitGroup
	ended.Go(func() {
		defer l.Close()
		a, err := l.AcceptTCP()
		if err != nil {
			return
		}
		b, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: to})
		if err != nil {
			a.Close()
			return
		}
		r.mu.Lock()
		r.c = []*net.TCPConn{a, b}
		r.mu.Unlock()
		for _, d := range [][2]*net.TCPConn{{a, b}, {b, a}} {
			ended.Go(func() {
				io.Copy(d[0], d[1])
				r.mu.Lock()
				defer r.mu.Unlock()
				if !r.done {
					d[0].CloseWrite()
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.reset()
		ended.Wait()
	})
	return r
}

// reset sends an RST to both sides, by closing the connections without lingering.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	for _, c := range r.c {
		c.SetLinger(0)
		c.Close()
	}
}
