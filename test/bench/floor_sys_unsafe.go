package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// iovec is a list of pieces of memory for one system call. It has only their addresses, so the
// caller must keep them alive. Mappings are.
type iovec []unix.Iovec

func (v *iovec) add(b []byte) {
	if len(b) == 0 {
		return
	}
	i := unix.Iovec{Base: &b[0]}
	i.SetLen(len(b))
	*v = append(*v, i)
}

// skip returns v without its first n bytes.
func (v iovec) skip(n int) iovec {
	for n > 0 {
		if l := int(v[0].Len); n >= l {
			n -= l
			v = v[1:]
			continue
		}
		v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
		v[0].SetLen(int(v[0].Len) - n)
		n = 0
	}
	return v
}

// transfer is sendmsg or recvmsg without blocking. It returns 0 for EAGAIN.
func (v iovec) transfer(call uintptr, fd int) (int, error) {
	h := unix.Msghdr{Iov: &v[0]}
	h.SetIovlen(len(v))
	n, _, errno := syscall.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, syscall.EPIPE
	}
	return int(n), nil
}

func (v iovec) sendTo(fd int) (int, error)   { return v.transfer(unix.SYS_SENDMSG, fd) }
func (v iovec) recvFrom(fd int) (int, error) { return v.transfer(unix.SYS_RECVMSG, fd) }
