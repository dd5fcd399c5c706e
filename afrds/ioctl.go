package afrds

import (
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

// Ioctl is ioctl(2): SIOCRDSSETTOS and SIOCRDSGETTOS, with one byte at arg. The type
// of service is the lane of the socket. ENOTTY: it was set before bind, or the
// request is another one. EINVAL: it was set after a send, or is set already.
// EFAULT: arg is empty.
//
// Source: net/rds/af_rds.c rds_ioctl.
func (s *Socket) Ioctl(request uint, arg []byte) error {
	rs, err := s.socket()
	if err != nil {
		return err
	}
	switch request {
	case cmsg.IoctlSetTOS:
		switch {
		case len(arg) < 1:
			return syscall.EFAULT
		case rs == nil:
			return syscall.ENOTTY
		}
		return s.setTOS(rs, arg[0])
	case cmsg.IoctlGetTOS:
		if len(arg) < 1 {
			return syscall.EFAULT
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		arg[0] = s.tos
		return nil
	}
	return syscall.ENOTTY
}

// setTOS puts the socket into the lane of a type of service. RDS/TCP has only lane 0.
func (s *Socket) setTOS(rs *rds.Socket, tos uint8) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.transport == cmsg.TransportTCP {
		tos = 0
	}
	err := rs.SetLane(tos)
	if err == nil {
		s.tos = tos
	}
	return errno(err)
}
