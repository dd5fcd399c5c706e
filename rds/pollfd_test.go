package rds

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func readable(t testing.TB, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil || n == 1 && fds[0].Revents != unix.POLLIN {
		t.Fatal(fds, err)
	}
	return n == 1
}

// takeables are everything that can be taken.
var takeables = WaitSet{Message: true, Completion: true, Notice: true, ZeroCopy: true, congestion: true}

func mustPollFD(t testing.TB, s *Socket) int {
	t.Helper()
	fd, err := s.PollFD(takeables)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestPollFD: readable exactly while something waits to be taken, whoever
// looks after the rings.
func TestPollFD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b, local, remote, r := rdmaPair(t, noSpin)
		_ = remote
		to := b.LocalAddrPort()
		mustSend(t, b, "before", a)
		synctest.Wait()
		fd := mustPollFD(t, a)
		if again := mustPollFD(t, a); again != fd {
			t.Fatal("two descriptors")
		}
		mustRecv(t, a, "before")
		if readable(t, fd) {
			t.Error("readable with nothing to take")
		}
		(kernelSocket{a}).SetCongMonitor(true)
		mustSend(t, a, "a destination", b)
		synctest.Wait()
		mustRecv(t, b, "a destination")
		for name, tt := range map[string]struct {
			cause, take func()
		}{
			"message": {func() { mustSend(t, b, "1", a) }, func() { mustRecv(t, a, "1") }},
			"messages": {func() { mustSend(t, b, "1", a); mustSend(t, b, "2", a) }, func() {
				mustRecv(t, a, "1")
				if err := look(bg(), a, &Received{}); err != nil || !readable(t, fd) {
					t.Error("not readable with one left", err)
				}
				mustRecv(t, a, "2")
			}},
			"batch": {func() { mustSend(t, b, "1", a); mustSend(t, b, "2", a) }, func() {
				if n, err := a.RecvBatch(context.Background(), make([]Received, 3)); n != 2 || err != nil {
					t.Error(n, err)
				}
			}},
			"completion": {func() { write(t, a, to, r, local, true); synctest.Wait(); mustDrain(t, b) }, func() {
				if n := a.Completions(make([]Completion, 3)); n != 1 {
					t.Error(n)
				}
			}},
			"one completion": {func() { write(t, a, to, r, local, true); synctest.Wait(); mustDrain(t, b) }, func() {
				if _, err := a.WaitOp(bg(), to.Addr(), a.HWM(to.Addr())); err != nil {
					t.Error(err)
				}
			}},
			"notice": {func() { d.do(func() { d.notice(d.slots[a.lastDest.slot], 3, 0) }) }, func() {
				if n := a.Notices(make([]Notice, 3)); n != 1 {
					t.Error(n)
				}
			}},
			"zero-copy cookie": {func() {
				if _, err := a.Send(context.Background(), &Message{Addr: to, ZeroCopy: true}); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				mustDrain(t, b)
			}, func() {
				if n := a.ZeroCopyDone(make([]uint32, 3)); n != 1 {
					t.Error(n)
				}
			}},
			"congestion": {func() {
				fill(t, a, b)
				synctest.Wait()
				failSend(t, a, b)
				mustRecv(t, b, "full")
			}, func() {
				if (kernelSocket{a}).CongUpdates() == 0 {
					t.Error("no update")
				}
			}},
		} {
			tt.cause()
			synctest.Wait()
			if !readable(t, fd) {
				t.Errorf("%s: not readable", name)
			}
			tt.take()
			synctest.Wait()
			if readable(t, fd) {
				t.Errorf("%s: readable when taken", name)
			}
		}
		d.die(nil)
		synctest.Wait()
		if !readable(t, fd) {
			t.Error("the daemon's end does not show")
		}
		if err := a.Recv(DontWait, &Received{}); !errors.Is(err, ErrDaemonGone) || !readable(t, fd) {
			t.Error(err)
		}
		if fd := mustPollFD(t, b); !readable(t, fd) {
			t.Error("the daemon's end does not show in a new descriptor")
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		if _, err := a.PollFD(takeables); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}) // and all goroutines have ended
}

// mustDrain takes what is there.
func mustDrain(t testing.TB, s *Socket) {
	t.Helper()
	for s.Recv(DontWait, &Received{}) == nil {
	}
}

// TestPollEdges: an edge-triggered user sees each new message, also one that
// comes before the last was taken; a blocked one wakes at Close.
func TestPollEdges(t *testing.T) {
	_, a, b := pair(t, Options{})
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	fd := mustPollFD(t, b)
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		t.Fatal(err)
	}
	wait := func(ms int) int {
		for {
			n, err := unix.EpollWait(ep, make([]unix.EpollEvent, 1), ms)
			if err != unix.EINTR {
				return n
			}
		}
	}
	for i := range 5 {
		mustSend(t, a, "x", b)
		if wait(10_000) != 1 {
			t.Fatalf("message %d is no edge", i)
		}
		if wait(0) != 0 {
			t.Fatalf("message %d is two edges", i)
		}
	}
	for range 5 {
		mustRecv(t, b, "x")
	}
	if wait(0) != 0 {
		t.Error("an edge without a message")
	}
	go b.Close()
	runtime.Gosched()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(10*time.Second/time.Millisecond)); n != 1 && err != unix.EINTR {
		t.Error("Close does not show", n, err)
	}
}
