package rds

import (
	"context"
	"net"
	"net/netip"
	"testing"
)

// FakePair makes two sockets of one client on a fake daemon, for tests outside
// the package.
func FakePair(t testing.TB, o Options) (a, b net.PacketConn, stop func()) {
	_, x, y := pair(t, o)
	return x, y, func() { _ = x.c.Close() }
}

// trySend is SendTo that does not wait.
func trySend(s *Socket, p []byte, to netip.AddrPort) (int, error) {
	if _, err := s.Send(DontWait, &Message{Payload: p, Addr: to}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// tryRecv is RecvFrom that does not wait.
func tryRecv(s *Socket, p []byte) (int, netip.AddrPort, error) {
	m := Received{Payload: p}
	err := s.Recv(DontWait, &m)
	return m.N, m.Addr, err
}

// look is Recv that leaves the message in the queue.
func look(ctx context.Context, s *Socket, m *Received) error { return recvOr(ctx, s, m, true) }

func recvOr(ctx context.Context, s *Socket, m *Received, peek bool) error {
	dontWait, err := impatient(ctx)
	if err == nil {
		s.c.rx.mu.Lock()
		_, err = s.recvInto(ctx, m, peek, dontWait)
	}
	return recvError(err)
}
