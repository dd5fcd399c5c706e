package model

import (
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlOf lays the control words over the beginning of a ring's memory.
func controlOf(mem []byte) *control { return (*control)(unsafe.Pointer(unsafe.SliceData(mem))) }

// The calls below cannot block, so they do not tell the Go scheduler.

func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

var one = [8]byte{1}

// ringBell adds one to an eventfd.
func ringBell(fd int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// send writes what the connection takes of b, which may be nothing. flags are added to the call's.
func send(fd int, b []byte, flags uintptr) (int, error) {
	return moved(syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|flags, 0, 0))
}

// receive reads what the connection has, which may be nothing. The end of the connection is
// io.EOF.
func receive(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 && n == 0 {
		return 0, io.EOF
	}
	return moved(n, 0, errno)
}

func moved(n, _ uintptr, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, errno
}
