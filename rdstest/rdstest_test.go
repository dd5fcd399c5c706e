package rdstest_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestConformance: sockets of two hosts, of one host, and of one process pass
// as packet connections.
func TestConformance(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	for _, tt := range []struct {
		name   string
		da, db *rdstest.Daemon
		one    bool
	}{
		{"two hosts", d[0], d[1], false},
		{"same host", d[0], d[0], false},
		{"same process", d[0], d[0], true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rdstest.TestPacketConn(t, func() (net.PacketConn, net.PacketConn, func(), error) {
				ca := tt.da.Open(t)
				cb := ca
				if !tt.one {
					cb = tt.db.Open(t)
				}
				stop := func() {
					_ = ca.Close()
					_ = cb.Close()
				}
				return tt.da.Bind(t, ca, 0), tt.db.Bind(t, cb, 0), stop, nil
			})
		})
	}
}

// TestRestart: a stopped daemon's clients are told, and a new instance serves
// at the same place.
func TestRestart(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	c := d[0].Open(t)
	s := d[0].Bind(t, c, 4000)
	peer := d[1].Bind(t, d[1].Open(t), 4000)
	hello := func(s *rds.Socket) {
		t.Helper()
		_ = peer.SetReadDeadline(time.Now().Add(patience))
		if _, err := s.SendTo([]byte("hello"), peer.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		if _, from, err := peer.RecvFrom(make([]byte, 10)); err != nil || from != s.LocalAddrPort() {
			t.Fatal(from, err)
		}
	}
	hello(s)
	if err := d[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RecvFrom(nil); !errors.Is(err, rds.ErrDaemonGone) {
		t.Fatalf("receive of a stopped daemon's socket: %v", err)
	}
	d[0].Start(t)
	hello(d[0].Bind(t, d[0].Open(t), 4000))
}
