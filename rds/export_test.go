package rds

import (
	"net"
	"testing"
)

// FakePair makes two sockets of one client on a fake daemon, for tests outside
// the package.
func FakePair(t testing.TB, o Options) (a, b net.PacketConn, stop func()) {
	_, x, y := pair(t, o)
	return x, y, func() { _ = x.c.Close() }
}
