package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
)

// failing is a listener that is at the limit of descriptors some times before it has a connection.
type failing struct {
	net.Listener
	fails int
	conns chan net.Conn
}

func (l *failing) Accept() (net.Conn, error) {
	if l.fails > 0 {
		l.fails--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// TestAcceptFails: without descriptors for a client the server goes on, says so once, and has the
// client when there are descriptors again.
func TestAcceptFails(t *testing.T) {
	var said bytes.Buffer
	s := &server{connections: 1, log: slog.New(slog.NewTextHandler(&said, nil))}
	l := &failing{fails: 3, conns: make(chan net.Conn, 1)}
	ours, theirs := net.Pipe()
	l.conns <- theirs
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.accept(t.Context(), l)
	}()
	greeting := make([]byte, 8)
	if _, err := io.ReadFull(ours, greeting); err != nil || string(greeting) != "NBDMAGIC" {
		t.Errorf("the client was told %q, %v", greeting, err)
	}
	ours.Close()
	close(l.conns)
	<-done
	if n := strings.Count(said.String(), "no client can connect"); n != 1 {
		t.Errorf("said %d times that no client can connect:\n%s", n, said.String())
	}
}
