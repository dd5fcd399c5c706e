package rds_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// told returns the next notice of s.
func told(t *testing.T, s *rds.Socket) rds.Notice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var n [1]rds.Notice
	for s.Notices(n[:]) == 0 {
		if _, err := s.Wait(ctx, rds.WaitSet{Notice: true}); err != nil {
			t.Fatal(err)
		}
	}
	return n[0]
}

// A host that nobody is at is told with the reason. Messages to it wait, or fail
// if the sender wants that; the first one always waits, for it is what the daemon
// tries for.
func TestUnreachable(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	s := d.Bind(t, d.Open(t), 0)
	to := netip.MustParseAddrPort("127.254.253.252:7")
	send := func() error { _, err := s.SendTo([]byte("x"), to); return err }
	if err := send(); err != nil {
		t.Fatal(err)
	}
	if n := told(t, s); n.Kind != rds.Unreachable || n.To != to || !errors.Is(n.Reason, syscall.ECONNREFUSED) {
		t.Fatalf("told %+v", n)
	}
	if err := send(); err != nil {
		t.Errorf("without SetFailUnreachable: %v", err)
	}
	s.SetFailUnreachable(true)
	if err := send(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("with messages waiting: %v, want ECONNREFUSED", err)
	}
	if err := s.CancelSentTo(to); err != nil {
		t.Fatal(err)
	}
	for err := send(); err != nil; err = send() { // until the daemon has withdrawn them
		if !errors.Is(err, syscall.ECONNREFUSED) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A send to a host that peers.allow forbids fails with EACCES, the first one too,
// and the socket is told.
func TestForbidden(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	s := d.Bind(t, d.Open(t), 0)
	to := netip.MustParseAddrPort("192.0.2.1:7")
	if _, err := s.SendTo([]byte("x"), to); !errors.Is(err, syscall.EACCES) {
		t.Errorf("the first send: %v, want EACCES", err)
	}
	if n := told(t, s); n.Kind != rds.Unreachable || n.To != to || !errors.Is(n.Reason, syscall.EACCES) {
		t.Fatalf("told %+v", n)
	}
	if _, err := s.SendTo([]byte("x"), to); !errors.Is(err, syscall.EACCES) {
		t.Errorf("the next: %v, want EACCES", err)
	}
}
