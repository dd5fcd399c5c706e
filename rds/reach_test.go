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

// TestUnreachableOps: an operation whose wait for a host ends says why the host is not reached,
// whether its context is canceled or its time runs out.
func TestUnreachableOps(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	buf, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	const cookie = 1 << 40
	to := netip.MustParseAddrPort("127.254.253.252:7")
	rdma := rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: buf, Len: 8}}}
	for name, do := range map[string]func(ctx context.Context, s *rds.Socket) error{
		"RDMARead":  func(ctx context.Context, s *rds.Socket) error { return s.RDMARead(ctx, to, &rdma) },
		"RDMAWrite": func(ctx context.Context, s *rds.Socket) error { return s.RDMAWrite(ctx, to, &rdma) },
		"Atomic": func(ctx context.Context, s *rds.Socket) error {
			_, err := s.Atomic(ctx, to, &rds.Atomic{Cookie: cookie, Add: 1})
			return err
		},
		"ReadAt": func(ctx context.Context, s *rds.Socket) error {
			_, err := s.Remote(ctx, to, cookie, 100).ReadAt(make([]byte, 8), 0)
			return err
		},
		"WriteAt": func(ctx context.Context, s *rds.Socket) error {
			_, err := s.Remote(ctx, to, cookie, 100).WriteAt(make([]byte, 8), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := d.Bind(t, c, 0)
			why := func(err, end error) {
				t.Helper()
				if reason, is := errors.AsType[rds.Reason](err); !is || !errors.Is(reason, syscall.ECONNREFUSED) || !errors.Is(err, end) {
					t.Errorf("%v, want %v and that no daemon listens there", err, end)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- do(ctx, s) }()
			if n := told(t, s); n.Kind != rds.Unreachable || n.To != to {
				t.Errorf("told %+v", n)
			}
			cancel()
			why(<-done, context.Canceled)
			short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			why(do(short, s), context.DeadlineExceeded)
		})
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
