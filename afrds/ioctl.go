package afrds

import (
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
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
		return errno(rs.SetLane(s.tosMap(arg[0])))
	case cmsg.IoctlGetTOS:
		if len(arg) < 1 {
			return syscall.EFAULT
		}
		arg[0] = 0
		if rs != nil {
			arg[0] = rs.Lane()
		}
		return nil
	}
	return syscall.ENOTTY
}

// tosMap returns the lane for a type of service. RDS/TCP has only lane 0.
func (s *Socket) tosMap(tos uint8) uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.transport == cmsg.TransportTCP {
		return 0
	}
	return tos
}
