package afrds_test

import (
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rdstest"
)

func bound(t *testing.T, d *rdstest.Daemon) *afrds.Socket {
	t.Helper()
	k := afrds.New(d.Open(t))
	k.SetControl(d.Socket())
	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	if err == nil {
		err = s.Bind(afrds.Sockaddr(netip.AddrPortFrom(d.Addr(), 0)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Calls of all kinds at once, from many goroutines, and a close in their midst:
// none hangs, and those that were waiting say so.
func TestCloseInTheMidst(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	s, to := bound(t, ds[0]), bound(t, ds[1])
	name, err := to.Getsockname()
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for _, call := range []func() error{
		func() error { _, err := s.Recvmsg(make([]byte, 10), nil, make([]byte, 64), 0); return err },
		func() error { _, err := s.Sendmsg(make([]byte, 1000), name, nil, 0); return err },
		func() error { _, err := s.Poll(afrds.PollIn, time.Millisecond); return err },
		func() error { _, err := s.Poll(afrds.PollIn, -1); return err },
		func() error { _, err := s.Getsockname(); return err },
		func() error { return s.Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, name) },
		func() error { s.Interrupt(); time.Sleep(time.Millisecond); _, err := s.Getsockname(); return err },
	} {
		calls.Go(func() {
			for {
				if err := call(); err != nil && err != error(syscall.EINTR) {
					if err != error(syscall.EBADF) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	to.SetNonblock(true)
	for n := 0; n < 300; {
		if _, err := to.Recvmsg(make([]byte, 1000), nil, nil, 0); err == nil {
			n++
		} else if _, err := to.Poll(afrds.PollIn, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	calls.Wait()
	if err := s.Close(); err != error(syscall.EBADF) {
		t.Errorf("a second close: %v", err)
	}
}

// A receive that began before bind gets what comes after it.
func TestReceiveBeforeBind(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	k := afrds.New(d.Open(t))
	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan error, 1)
	go func() {
		_, err := s.Recvmsg(nil, nil, nil, 0)
		done <- err
	}()
	if err := s.Bind(afrds.Sockaddr(netip.AddrPortFrom(d.Addr(), 0))); err != nil {
		t.Fatal(err)
	}
	name, err := s.Getsockname()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bound(t, d).Sendmsg(nil, name, nil, 0); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
