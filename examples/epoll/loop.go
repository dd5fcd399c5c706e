package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
)

// loop is an epoll descriptor with two members: the socket's descriptor, and an eventfd that
// a signal makes readable to end the loop.
type loop struct {
	ep, stop int
	fd       int
}

func newLoop(s *rds.Socket) (*loop, error) {
	fd, err := s.PollFD(rds.WaitSet{Message: true, Notice: true})
	if err != nil {
		return nil, err
	}
	l := &loop{fd: fd, stop: -1}
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, err
	}
	for _, fd := range []int{l.fd, l.stop} {
		// Level-triggered: readable as long as a condition of the poll set holds.
		if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return nil, err
		}
	}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-sig
		_, _ = unix.Write(l.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}()
	return l, nil
}

// poll makes the descriptor of s readable for w from now on.
func poll(s *rds.Socket, w rds.WaitSet) error {
	_, err := s.PollFD(w)
	return err
}

func (l *loop) close() {
	_ = unix.Close(l.ep)
	_ = unix.Close(l.stop)
}

// run calls step at once and then each time the socket's descriptor is readable, until step
// is done or fails, or the program is interrupted.
func (l *loop) run(step func() (done bool, err error)) error {
	for {
		if done, err := step(); done || err != nil {
			return err
		}
		var events [2]unix.EpollEvent
		n, err := unix.EpollWait(l.ep, events[:], -1)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == l.stop {
				return nil
			}
		}
	}
}
