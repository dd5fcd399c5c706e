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

// TestUnreachableOps: an operation that is waited for ends when its host turns out not to be reached.
// It has not run, the socket is told, and the next one has the daemon try again.
func TestUnreachableOps(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	buf, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	const cookie = 1 << 40
	refused, forbidden := netip.MustParseAddrPort("127.254.253.252:7"), netip.MustParseAddrPort("192.0.2.1:7")
	rdma := rds.RDMA{Cookie: cookie, Local: []rds.Segment{{Buf: buf, Len: 8}}}
	for name, do := range map[string]func(s *rds.Socket, to netip.AddrPort) error{
		"RDMARead":  func(s *rds.Socket, to netip.AddrPort) error { return s.RDMARead(t.Context(), to, &rdma) },
		"RDMAWrite": func(s *rds.Socket, to netip.AddrPort) error { return s.RDMAWrite(t.Context(), to, &rdma) },
		"Atomic": func(s *rds.Socket, to netip.AddrPort) error {
			_, err := s.Atomic(t.Context(), to, &rds.Atomic{Cookie: cookie, Add: 1})
			return err
		},
		"ReadAt": func(s *rds.Socket, to netip.AddrPort) error {
			_, err := s.Remote(t.Context(), to, cookie, 1<<20).ReadAt(make([]byte, 1<<20), 0)
			return err
		},
		"WriteAt": func(s *rds.Socket, to netip.AddrPort) error {
			_, err := s.Remote(t.Context(), to, cookie, 1<<20).WriteAt(make([]byte, 1<<20), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := d.Bind(t, c, 0)
			s.SetNotices() // it does not hang on what the socket queues
			for range 3 {
				if err := do(s, refused); !notReached(err, syscall.ECONNREFUSED) {
					t.Errorf("%v, want that no daemon listens there", err)
				}
			}
			if err := do(s, forbidden); !notReached(err, syscall.EACCES) {
				t.Errorf("%v, want that peers.allow forbids it", err)
			}
			if err := s.BarrierAll(t.Context()); err != nil {
				t.Error(err)
			}
			if n := s.Completions(make([]rds.Completion, 1)); n != 0 {
				t.Error("a completion is left")
			}
		})
	}
}

// notReached reports whether err is a Reason with an errno, and no other end of an operation than Dropped.
func notReached(err error, errno syscall.Errno) bool {
	reason, is := errors.AsType[rds.Reason](err)
	return is && errors.Is(reason, errno) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rds.Canceled) && !errors.Is(err, rds.Unknown)
}

// TestUnreachableOthers: what others have sent to a host that is not reached goes on waiting when an
// operation ends for that, and so does an operation that nobody waits for in one call.
func TestUnreachableOthers(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	s := d.Bind(t, c, 0)
	buf, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("127.254.253.252:7")
	rdma := rds.RDMA{Cookie: 1 << 40, Local: []rds.Segment{{Buf: buf, Len: 8}}, Notify: true}
	m := rds.Message{Addr: to, Op: &rdma}
	if _, err := s.Send(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	if n := told(t, s); n.Kind != rds.Unreachable {
		t.Fatalf("told %+v", n)
	}
	for range 2 {
		if err := s.RDMARead(t.Context(), to, &rdma); !notReached(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, want that no daemon listens there", err)
		}
	}
	if hwm := s.HWM(to.Addr()); hwm != 0 {
		t.Errorf("the operation that waits has ended: the mark is %d", hwm)
	}
	if n := s.Completions(make([]rds.Completion, 1)); n != 0 {
		t.Error("the operation that waits has ended")
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
