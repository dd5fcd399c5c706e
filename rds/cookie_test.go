package rds

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// TestCookieNotTaken: a cookie to a host that takes none is refused at the send
// once the daemon has opened the destination; plain messages go.
func TestCookieNotTaken(t *testing.T) {
	d, a, b, _, _, r := rdmaPair(t, Options{})
	d.do(func() { d.noRDMA = true })
	m := Message{Addr: a.LocalAddrPort(), Cookie: r.Cookie()}
	refused := func(what string, s *Socket) {
		t.Helper()
		_, err := s.Send(context.Background(), &m)
		if !errors.Is(err, syscall.EOPNOTSUPP) || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
		if n, err := s.SendBatch(context.Background(), []Message{m}); n != 0 || !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("%s, several: %d, %v", what, n, err)
		}
	}
	if _, err := b.SendTo([]byte("plain"), a.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, _, err := a.RecvFrom(buf); err != nil || string(buf[:n]) != "plain" {
		t.Errorf("received %q, %v", buf[:n], err)
	}
	refused("to an open destination", b)
	// A slot that had another user says nothing about the next one.
	d.do(func() { d.noRDMA = false })
	if _, err := a.Send(context.Background(), &Message{Addr: b.LocalAddrPort(), Cookie: r.Cookie()}); err != nil {
		t.Error(err)
	}
}
