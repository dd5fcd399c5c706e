package afrds_test

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rdstest"
	"golang.org/x/sys/unix"
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

// TestPollForNothing: a poll without a condition to wait for, as for the end of congestion where no
// send has met any, ends with its time-out, and with POLLERR when the daemon ends.
func TestPollForNothing(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	s := bound(t, d)
	for _, events := range []int{0, afrds.PollWrBand} {
		if got, err := s.Poll(events, time.Millisecond); got != 0 || err != nil {
			t.Errorf("events %#x: %#x, %v", events, got, err)
		}
	}
	done := make(chan int, 1)
	go func() {
		got, _ := s.Poll(afrds.PollWrBand, -1)
		done <- got
	}()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != afrds.PollErr {
		t.Errorf("after the daemon's end: %#x", got)
	}
}

// TestPollFD: without the monitor the descriptor tells that a destination is free
// again, until a receive finds nothing; and so does Poll.
func TestPollFD(t *testing.T) {
	for _, how := range []string{"recvmsg", "poll"} {
		d := rdstest.StartDaemons(t, 1)[0]
		s, to := bound(t, d), bound(t, d)
		name, err := to.Getsockname()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := s.PollFD()
		if err != nil {
			t.Fatal(err)
		}
		readable := func(ms int) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, ms)
			for err == unix.EINTR {
				n, err = unix.Poll(p, ms)
			}
			return err == nil && n == 1
		}
		s.SetNonblock(true)
		to.SetNonblock(true)
		for err := error(nil); err != error(syscall.ENOBUFS); _, err = s.Sendmsg(make([]byte, 50_000), name, nil, 0) {
			if err != nil && err != error(syscall.EAGAIN) {
				t.Fatal(err)
			}
		}
		if err := s.Setsockopt(cmsg.SOLRDS, cmsg.OptCancelSentTo, name); err != nil { // or it fills the destination again
			t.Fatal(err)
		}
		if readable(0) {
			t.Errorf("%s: readable while the destination is congested", how)
		}
		free := make(chan bool)
		go func() { free <- readable(60_000) }()
		for told := false; !told; {
			select {
			case told = <-free:
				if !told {
					t.Fatalf("%s: the end of congestion was not told", how)
				}
			default:
				_, _ = to.Recvmsg(make([]byte, 50_000), nil, nil, 0)
			}
		}
		if how == "poll" {
			if got, err := s.Poll(afrds.PollIn|afrds.PollWrBand, 0); got&afrds.PollWrBand == 0 || err != nil {
				t.Errorf("poll: %#x, %v", got, err)
			}
		} else if _, err := s.Recvmsg(nil, nil, nil, 0); err != error(syscall.EAGAIN) {
			t.Errorf("recvmsg: %v", err)
		}
		if readable(0) {
			t.Errorf("%s: told again", how)
		}
	}
}

// TestOnceForTwo: the cookie of a region for one use is refused for a second host at
// the send, for no notice would say that the message did not go.
func TestOnceForTwo(t *testing.T) {
	ds := rdstest.StartDaemons(t, 3)
	k := afrds.New(ds[0].Open(t))
	k.SetControl(ds[0].Socket())
	s, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	if err == nil {
		err = s.Bind(afrds.Sockaddr(netip.AddrPortFrom(ds[0].Addr(), 0)))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	buf, at, err := k.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	a := cmsg.GetMRArgs{Vec: cmsg.IOVec{Addr: at, Bytes: 4096}, CookieAddr: at + 4096, Flags: cmsg.FlagReadWrite | cmsg.FlagUseOnce}
	if err := s.Setsockopt(cmsg.SOLRDS, cmsg.OptGetMR, a.Append(nil)); err != nil {
		t.Fatal(err)
	}
	dest := cmsg.Append(nil, cmsg.SOLRDS, cmsg.TypeRDMADest, buf.Bytes()[4096:4104])
	for i, want := range []error{nil, syscall.EBUSY, nil} {
		to := bound(t, ds[1+i%2])
		name, err := to.Getsockname()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sendmsg([]byte("take it"), name, dest, 0); err != want {
			t.Errorf("message %d: %v, want %v", i, err, want)
		}
		if want != nil {
			continue
		}
		if r, err := to.Recvmsg(make([]byte, 10), nil, make([]byte, 64), 0); err != nil || r.ControlLen == 0 {
			t.Errorf("message %d: received %+v, %v", i, r, err)
		}
	}
}

// TestOracle: what programs made for Oracle's UEK ask for beyond Linux gets the errno of a Linux
// that does not have it (docs/kernel.md, Oracle's extensions).
func TestOracle(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	k := afrds.New(d.Open(t))
	if _, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 142); err != error(syscall.ESOCKTNOSUPPORT) {
		t.Errorf("IPPROTO_OKA: %v", err)
	}
	s := bound(t, d)
	free, err := k.Socket(cmsg.AFRDS, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = free.Close() })
	name, err := s.Getsockname()
	if err != nil {
		t.Fatal(err)
	}
	async := binary.NativeEndian.AppendUint64(nil, uint64(syscall.CmsgLen(16)))
	async = binary.NativeEndian.AppendUint32(async, cmsg.SOLRDS)
	async = append(binary.NativeEndian.AppendUint32(async, 10), make([]byte, 16)...)
	for _, c := range []struct {
		what string
		call func() error
		want syscall.Errno
	}{
		{"RDS_CONN_RESET, bound", func() error { return s.Setsockopt(cmsg.SOLRDS, 8, make([]byte, 12)) }, syscall.EOPNOTSUPP},
		{"RDS_CONN_RESET, not bound", func() error { return free.Setsockopt(cmsg.SOLRDS, 8, make([]byte, 12)) }, syscall.EINVAL},
		{"Oracle's SO_RDS_TRANSPORT", func() error { return free.Setsockopt(cmsg.SOLRDS, 9, make([]byte, 4)) }, syscall.ENOPROTOOPT},
		{"RDS6_CONN_RESET", func() error { return s.Setsockopt(cmsg.SOLRDS, 11, make([]byte, 33)) }, syscall.ENOPROTOOPT},
		{"SO_RDS_INQ", func() error { return s.Setsockopt(cmsg.SOLRDS, 12, make([]byte, 4)) }, syscall.ENOPROTOOPT},
		{"a table", func() error { _, _, err := s.Getsockopt(cmsg.SOLRDS, 10020, make([]byte, 4096)); return err }, syscall.ENOPROTOOPT},
		{"the netfilter request", func() error { return s.Ioctl(0x89e2, nil) }, syscall.ENOTTY},
		{"RDS_CMSG_ASYNC_SEND", func() error { _, err := s.Sendmsg([]byte("async"), name, async, 0); return err }, syscall.EINVAL},
	} {
		if err := c.call(); err != error(c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}
