package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

const (
	afRDS      = 21
	solRDS     = 276
	maxMessage = cmsg.MaxMessage
)

// received is what recvmsg returns besides the data: the lengths of payload, address and control
// messages, and the flags.
type received struct {
	n, name, control, flags int
}

// socket is an RDS socket of the kernel or of rdsd. Addresses, options and control messages are
// bytes in the kernel's layout.
type socket interface {
	bind(name []byte) error
	sendmsg(payload, name, control []byte, flags int) (int, error)
	recvmsg(payload, name, control []byte, flags int) (received, error)
	setsockopt(level, opt int, val []byte) error
	alloc(n int) ([]byte, uint64, error) // memory for operations, and its address for control messages
	poll(events int, d time.Duration) (int, error)
	close() error
}

// open makes a socket with the buffers of -sndbuf and -rcvbuf and binds it to at.
func (c *config) open(at netip.AddrPort) (socket, error) {
	var s socket
	switch c.via {
	case "kernel":
		fd, err := unix.Socket(afRDS, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("socket(AF_RDS): %w (is the kernel module rds loaded?)", err)
		}
		s = &kernelSocket{fd}
	case "rdsd":
		var err error
		if s, err = openRDSD(c.rdsd); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("-via %q: want kernel or rdsd (rds is for echo, rtt and rate only)", c.via)
	}
	for _, o := range []struct{ opt, val int }{{unix.SO_SNDBUF, c.sndbuf}, {unix.SO_RCVBUF, c.rcvbuf}} {
		if o.val == 0 {
			continue
		}
		if c.via == "kernel" { // root may exceed the system's limit
			o.opt = map[int]int{unix.SO_SNDBUF: unix.SO_SNDBUFFORCE, unix.SO_RCVBUF: unix.SO_RCVBUFFORCE}[o.opt]
		}
		if err := s.setsockopt(unix.SOL_SOCKET, o.opt, i32(o.val)); err != nil {
			s.close()
			return nil, fmt.Errorf("setsockopt %d: %w", o.opt, err)
		}
	}
	if err := s.bind(afrds.Sockaddr(at)); err != nil {
		s.close()
		return nil, fmt.Errorf("bind %v: %w", at, err)
	}
	return s, nil
}

func i32(v int) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

// limitRecv makes receives fail that wait longer than d.
func limitRecv(s socket, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	b := binary.NativeEndian.AppendUint64(nil, uint64(tv.Sec))
	return s.setsockopt(unix.SOL_SOCKET, unix.SO_RCVTIMEO, binary.NativeEndian.AppendUint64(b, uint64(tv.Usec)))
}

// sendTo sends one message. While the send buffer is full or the destination is congested, it
// tries again, for -limit at most. With -nonblock its sends do not block, and it polls in between.
func (c *config) sendTo(s socket, payload, name []byte) error {
	flags := 0
	if c.nonblock {
		flags = unix.MSG_DONTWAIT
	}
	for end := time.Now().Add(c.limit); ; {
		n, err := s.sendmsg(payload, name, nil, flags)
		switch {
		case err == nil && n == len(payload):
			return nil
		case err == nil:
			return fmt.Errorf("sendmsg of %d bytes returned %d", len(payload), n)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN):
			if time.Now().After(end) {
				return fmt.Errorf("sendmsg, tried for %v: %w", c.limit, err)
			}
			if errors.Is(err, unix.ENOBUFS) { // the destination is congested
				// Without a congestion monitor, poll reports POLLIN at the end of congestion.
				_, _ = s.poll(unix.POLLIN, 2*time.Millisecond)
			} else {
				_, _ = s.poll(unix.POLLOUT, 100*time.Millisecond)
			}
		default:
			return fmt.Errorf("sendmsg: %w", err)
		}
	}
}

// recvFrom receives one message. It skips notifications.
func recvFrom(s socket, buf []byte) (int, netip.AddrPort, error) {
	var name [28]byte
	for {
		r, err := s.recvmsg(buf, name[:], nil, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, netip.AddrPort{}, err
		case r.name == 0: // only a message has a source
			continue
		case r.flags&unix.MSG_TRUNC != 0:
			return 0, netip.AddrPort{}, fmt.Errorf("received a message longer than %d bytes", len(buf))
		}
		from, err := afrds.ParseSockaddr(name[:r.name])
		return r.n, from, err
	}
}

// rdsdSocket is a socket of rdsd, with a client of its own.
type rdsdSocket struct {
	*afrds.Socket
	k *afrds.Kernel
	c *rds.Client
}

func openRDSD(path string) (socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // emulated hosts are slow
	defer cancel()
	c, err := rds.Open(ctx, rds.Options{Socket: path})
	if err != nil {
		return nil, err
	}
	k := afrds.New(c)
	s, err := k.Socket(afRDS, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &rdsdSocket{s, k, c}, nil
}

func (s *rdsdSocket) alloc(n int) ([]byte, uint64, error) {
	b, at, err := s.k.Alloc(n)
	if err != nil {
		return nil, 0, err
	}
	return b.Bytes(), at, nil
}

func (s *rdsdSocket) bind(name []byte) error { return s.Bind(name) }
func (s *rdsdSocket) setsockopt(level, opt int, val []byte) error {
	return s.Setsockopt(level, opt, val)
}
func (s *rdsdSocket) poll(events int, d time.Duration) (int, error) { return s.Poll(events, d) }
func (s *rdsdSocket) close() error                                  { return errors.Join(s.Close(), s.c.Close()) }

func (s *rdsdSocket) sendmsg(payload, name, control []byte, flags int) (int, error) {
	return s.Sendmsg(payload, name, control, flags)
}

func (s *rdsdSocket) recvmsg(payload, name, control []byte, flags int) (received, error) {
	r, err := s.Recvmsg(payload, name, control, flags)
	return received{r.N, r.NameLen, r.ControlLen, r.Flags}, err
}
