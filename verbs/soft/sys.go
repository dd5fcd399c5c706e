package soft

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/guard"
)

// The owner's system calls cannot block, so they are raw: the scheduler is not
// told, which saves a third of a short call. All of them may see EINTR, from
// the runtime's preemption signals, and EFAULT, from guarded memory.

const ioFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// sendmsg writes iov to fd. It returns how many bytes the kernel took; 0 and nil if
// the kernel has no room.
func (s *scratch) sendmsg(fd, iovs int) (int, error) {
	for {
		n, e := s.call(unix.SYS_SENDMSG, unix.SYS_SENDTO, fd, iovs)
		switch e {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			if e == unix.EFAULT && guard.Touch(s.iov[:iovs]) {
				continue
			}
			return 0, e
		}
	}
}

// recvmsg reads into iov. again says that nothing is there. Otherwise an n of 0 is
// the end of the stream.
func (s *scratch) recvmsg(fd, iovs int) (n int, again bool, err error) {
	for {
		n, e := s.call(unix.SYS_RECVMSG, unix.SYS_RECVFROM, fd, iovs)
		switch e {
		case 0:
			return int(n), false, nil
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

// call is the call many, or one if a single piece of memory is all: then the kernel has no
// vector to read.
func (s *scratch) call(many, one uintptr, fd, iovs int) (uintptr, syscall.Errno) {
	if iovs == 1 {
		v := &s.iov[0]
		n, _, e := unix.RawSyscall6(one, uintptr(fd), uintptr(unsafe.Pointer(v.Base)), uintptr(v.Len), ioFlags, 0, 0)
		return n, e
	}
	s.msg = unix.Msghdr{Iov: &s.iov[0]}
	s.msg.SetIovlen(iovs)
	n, _, e := unix.RawSyscall(many, uintptr(fd), uintptr(unsafe.Pointer(&s.msg)), ioFlags)
	return n, e
}

func (s *scratch) set(i int, b []byte) {
	s.iov[i].Base = unsafe.SliceData(b)
	s.iov[i].SetLen(len(b))
}

// forget drops the references to memory that a call left in the scratch.
func (s *scratch) forget(iovs int) { clear(s.iov[:iovs]) }

func ring(fd int) {
	one := [8]byte{0: 1}
	_, _ = unix.Write(fd, one[:])
}

// clearFD makes fd, an eventfd or a timer, poll readable only after its next event.
func clearFD(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
