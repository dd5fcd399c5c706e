package conformance

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
)

func pollOut(t *testing.T, e *env) {
	if got := e.ka.socket(t).poll(afrds.PollOut); got != afrds.PollOut {
		t.Errorf("unbound: %#x", got)
	}
	s := e.ka.bound(t)
	dead := full(s)
	if got := s.poll(afrds.PollOut | afrds.PollWrNorm); got != 0 {
		t.Errorf("full: %#x", got)
	}
	s.set(cmsg.SOLRDS, cmsg.OptCancelSentTo, afrds.Sockaddr(dead))
	if got := s.polled(afrds.PollOut | afrds.PollWrNorm); got != afrds.PollOut|afrds.PollWrNorm {
		t.Errorf("with room again: %#x", got)
	}
	s, to := flow(t, e)
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	s.polled(afrds.PollOut) // as soon as the message is acked
	want(t, "send", s.send(nil, to.local()), syscall.ENOBUFS)
	to.drain(n)
}

func pollIn(t *testing.T, e *env) {
	const all = afrds.PollIn | afrds.PollRdNorm | afrds.PollErr | 0x10 // POLLHUP
	const in = afrds.PollIn | afrds.PollRdNorm
	r := newRDMA(t, e, 4096)
	s, to := r.s, r.to
	quiet := func(when string) {
		t.Helper()
		if got := s.poll(all); got != 0 {
			t.Errorf("%s: %#x", when, got)
		}
	}
	readable := func(why string) {
		t.Helper()
		if got := s.polled(all); got != in {
			t.Errorf("%s: %#x", why, got)
		}
		s.recv()
		quiet("after " + why)
	}
	quiet("at first")
	to.mustSend([]byte("x"), s.local())
	readable("data")
	r.statuses(1)
	readable("a status")
	s.set(cmsg.SOLRDS, cmsg.OptCongMonitor, i32(1))
	to.rcvbuf(4000)
	n := congest(s, to.local(), 1000)
	quiet("congested")
	to.drain(n)
	readable("relief")
	s.set(syscall.SOL_SOCKET, soZeroCopy, i32(1))
	ok(t, "zero copy", zcopy(s, 5000, to.local(), 7))
	to.recv()
	if got := s.polled(all); got != in {
		t.Errorf("a zero-copy completion: %#x", got)
	}
	if _, err := s.recvInto(nil, make([]byte, 64), syscall.MSG_DONTWAIT); err != nil {
		t.Errorf("it cannot be taken: %v", err)
	}
	quiet("at last")
}

func pollWriteBand(t *testing.T, e *env) {
	const events = afrds.PollIn | afrds.PollRdNorm | afrds.PollWrBand
	s, to := flow(t, e)
	to.rcvbuf(4000)
	for range 2 {
		n := congest(s, to.local(), 1000)
		if got := s.poll(events); got != 0 {
			t.Errorf("congested: %#x", got)
		}
		to.drain(n)
		if got := s.polled(events); got != events {
			t.Errorf("relieved: %#x", got)
		}
		if got := s.poll(events); got != 0 {
			t.Errorf("again: %#x", got)
		}
		s.empty()
	}
}

// epoll makes an epoll instance with one descriptor.
func epoll(t *testing.T, fd int, events uint32) (wait func(ms int) int) {
	t.Helper()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	ok(t, "epoll_create1", err)
	t.Cleanup(func() { unix.Close(ep) })
	ok(t, "epoll_ctl", unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events}))
	return func(ms int) int {
		t.Helper()
		for {
			var ev [4]unix.EpollEvent
			n, err := unix.EpollWait(ep, ev[:], ms)
			if err == unix.EINTR {
				continue
			}
			ok(t, "epoll_wait", err)
			return n
		}
	}
}

func epollSeesEach(t *testing.T, e *env) {
	s, to := flow(t, e)
	fd, err := to.PollFD()
	ok(t, "descriptor", err)
	level, edge := epoll(t, fd, unix.EPOLLIN), epoll(t, fd, unix.EPOLLIN|unix.EPOLLET)
	ms := int(patience / time.Millisecond)
	if level(0) != 0 || edge(0) != 0 {
		t.Error("readable at first")
	}
	for i := range 3 {
		s.mustSend([]byte{byte(i)}, to.local())
		if edge(ms) != 1 {
			t.Errorf("message %d is no new edge", i)
		}
		if level(0) != 1 || edge(0) != 0 {
			t.Errorf("message %d: level or edge wrong", i)
		}
	}
	for range 3 {
		if level(0) != 1 {
			t.Error("not readable although a message waits")
		}
		to.recv()
	}
	if level(0) != 0 || edge(0) != 0 {
		t.Error("readable when empty")
	}
	s.mustSend(nil, to.local())
	if edge(ms) != 1 || level(ms) != 1 {
		t.Error("not readable again")
	}
}
