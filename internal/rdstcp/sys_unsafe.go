package rdstcp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/guard"
)

// The owner's system calls do not block, so they are raw: the runtime is not notified.
// EINTR comes from the runtime's preemption signals, EFAULT from guarded memory.

const (
	ioFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	maxIov  = 64
)

type scratch struct {
	iov [maxIov]unix.Iovec
	msg unix.Msghdr
}

func (s *scratch) set(i int, b []byte) {
	s.iov[i].Base = unsafe.SliceData(b)
	s.iov[i].SetLen(len(b))
}

// send writes at most maxIov pieces. want is how many bytes these have.
func (s *scratch) send(fd int, pieces [][]byte) (n, want int, err error) {
	pieces = pieces[:min(len(pieces), maxIov)]
	for i, p := range pieces {
		s.set(i, p)
		want += len(p)
	}
	n, again, err := s.call(unix.SYS_SENDMSG, fd, len(pieces))
	if again {
		n = 0
	}
	return n, want, err
}

// recv reads into a, then b. again is true if there is nothing to read now.
func (s *scratch) recv(fd int, a, b []byte) (n int, again bool, err error) {
	i := 0
	if len(a) > 0 {
		s.set(0, a)
		i = 1
	}
	s.set(i, b)
	return s.call(unix.SYS_RECVMSG, fd, i+1)
}

func (s *scratch) call(trap uintptr, fd, iovs int) (n int, again bool, err error) {
	s.msg = unix.Msghdr{Iov: &s.iov[0]}
	s.msg.SetIovlen(iovs)
	defer clear(s.iov[:iovs])
	for {
		r, _, e := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&s.msg)), ioFlags)
		switch e {
		case 0:
			return int(r), false, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, true, nil
		default:
			if e == unix.EFAULT && guard.Touch(s.iov[:iovs]) {
				continue
			}
			return 0, false, e
		}
	}
}

func outq(fd int) (int, error) {
	var n int32
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

func epollWait(ep int, evs []unix.EpollEvent) int {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}
