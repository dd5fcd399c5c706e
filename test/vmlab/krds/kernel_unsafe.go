package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelSocket is a socket of the kernel. Its methods make the system calls themselves: callers
// give addresses in the kernel's layout, for which package unix has no calls.
type kernelSocket struct{ fd int }

func (s *kernelSocket) bind(name []byte) error {
	_, _, e := unix.Syscall(unix.SYS_BIND, uintptr(s.fd), uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)))
	return orNil(e)
}

func (s *kernelSocket) setsockopt(level, opt int, val []byte) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(unsafe.SliceData(val))), uintptr(len(val)), 0)
	return orNil(e)
}

// header returns the argument of sendmsg and recvmsg. It makes iov name payload.
func header(iov *unix.Iovec, payload, name, control []byte) unix.Msghdr {
	var m unix.Msghdr
	if len(name) > 0 {
		m.Name, m.Namelen = &name[0], uint32(len(name))
	}
	if len(control) > 0 {
		m.Control = &control[0]
		m.SetControllen(len(control))
	}
	iov.Base = unsafe.SliceData(payload)
	iov.SetLen(len(payload))
	m.Iov = iov
	m.SetIovlen(1)
	return m
}

func (s *kernelSocket) sendmsg(payload, name, control []byte, flags int) (int, error) {
	var iov unix.Iovec
	m := header(&iov, payload, name, control)
	n, _, e := unix.Syscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&m)), uintptr(flags))
	return int(n), orNil(e)
}

func (s *kernelSocket) recvmsg(payload, name, control []byte, flags int) (received, error) {
	var iov unix.Iovec
	m := header(&iov, payload, name, control)
	n, _, e := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&m)), uintptr(flags))
	if e != 0 {
		return received{}, e
	}
	return received{int(n), int(m.Namelen), int(m.Controllen), int(m.Flags)}, nil
}

func (s *kernelSocket) alloc(n int) ([]byte, uint64, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, 0, err
	}
	return b, uint64(uintptr(unsafe.Pointer(&b[0]))), nil
}

func (s *kernelSocket) poll(events int, d time.Duration) (int, error) {
	p := []unix.PollFd{{Fd: int32(s.fd), Events: int16(events)}}
	_, err := unix.Poll(p, int((d+999_999)/1_000_000))
	return int(p[0].Revents), err
}

func (s *kernelSocket) close() error { return unix.Close(s.fd) }

// orNil returns e as an error, and 0 as nil.
func orNil(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
