package rds

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestOneKeeper: one goroutine keeps the descriptors, however they come and go.
// A second one would take the wake-ups of the first.
func TestOneKeeper(t *testing.T) {
	_, a, b := pair(t, Options{})
	if _, err := a.PollFD(WaitSet{SendSpace: true}); err != nil {
		t.Fatal(err)
	}
	c, p := a.c, a.poll
	p.look.Lock()
	c.wait.lookAt(p.w) // the keeper wakes, and comes as far as the look
	for looks := true; looks; runtime.Gosched() {
		c.wait.mu.Lock()
		looks = c.wait.keeper != nil || len(c.wait.looks) > 0
		c.wait.mu.Unlock()
	}
	c.rx.mu.Lock()
	a.closePollFD()
	c.rx.mu.Unlock()
	mustPollFD(t, b)
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if n := strings.Count(string(stacks), "(*Socket).keep("); n != 1 {
		t.Errorf("%d goroutines keep the descriptors", n)
	}
	p.look.Unlock()
}

// TestEdgeAtFullRing: a send that failed because the daemon is behind is followed
// by an edge, as one that failed for another reason, though nothing else is to come.
func TestEdgeAtFullRing(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{SubEntries: 16}})
	mustSend(t, a, "opens the destination", b)
	d.do(func() {})
	a.c.tx.poll() // it has come back: nothing is left to have the keeper look
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	fd, err := a.PollFD(WaitSet{SendSpace: true})
	if err != nil {
		t.Fatal(err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		t.Fatal(err)
	}
	edge := func() bool {
		n, err := unix.EpollWait(ep, make([]unix.EpollEvent, 1), 0)
		for err == unix.EINTR {
			n, err = unix.EpollWait(ep, make([]unix.EpollEvent, 1), 0)
		}
		return n == 1
	}
	if !edge() || edge() {
		t.Fatal("one edge at first")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for port := 1; err == nil; port++ { // a new one each time: the send fails before it has set anything aside
		_, err = trySend(a, nil, stuckAt(port))
	}
	if err != errSendWouldBlock || a.c.tx.sub.Free() >= openEntries {
		t.Errorf("the ring is not full: %v", err)
	}
	if !edge() {
		t.Error("no edge behind the send that failed")
	}
}

// TestKeeperLooksAtReturns: a cookie that came back while no goroutine of the client waited for returned
// messages makes the descriptor readable when the keeper waits again.
func TestKeeperLooksAtReturns(t *testing.T) {
	d, a, b := pair(t, Options{})
	c := a.c
	m := Message{Addr: stuckAt(1), ZeroCopy: true, ZeroCopyCookie: 1}
	if _, err := a.Send(bg(), &m); err != nil {
		t.Fatal(err)
	}
	fd := must(a.PollFD(WaitSet{ZeroCopy: true}))
	must(b.PollFD(WaitSet{Op: []OpRef{{b.LocalAddrPort().Addr(), 0}}}))
	until := func(done func() bool) {
		for !done() {
			runtime.Gosched()
		}
	}
	keeps := func() bool {
		c.wait.mu.Lock()
		defer c.wait.mu.Unlock()
		return c.wait.keeper != nil
	}
	until(keeps)
	b.poll.look.Lock()
	c.wait.lookAt(b.poll.w) // the keeper wakes, and comes as far as the look
	until(func() bool { return !keeps() })
	received := make(chan error)
	go func() { received <- b.Recv(bg(), &Received{}) }()
	until(func() bool { return c.seg.ClientAsleep().Load() == shm.AsleepForEvents })
	d.releaseTo(m.Addr)
	if readable(t, fd) {
		t.Error("readable, though the daemon had to ring for events alone")
	}
	b.poll.look.Unlock()
	until(keeps)
	if !readable(t, fd) {
		t.Error("not readable with a cookie to take")
	}
	if err := errors.Join(b.Close(), <-received); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
