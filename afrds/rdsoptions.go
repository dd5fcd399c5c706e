package afrds

import (
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/internal/krds"
)

func (s *Socket) setRDSOption(opt int, val []byte) error {
	switch opt {
	case cmsg.OptCancelSentTo:
		return s.cancelSentTo(val)
	case cmsg.OptGetMR:
		return s.getMR(val)
	case cmsg.OptGetMRForDest:
		return s.getMRForDest(val)
	case cmsg.OptFreeMR:
		return s.freeMR(val)
	case cmsg.OptBarrier:
		return s.barrier(val)
	case cmsg.OptRecvErr:
		return s.setBool(&s.opts.recverr, val)
	case cmsg.OptCongMonitor:
		return s.setMonitor(val)
	case cmsg.OptTransport:
		return s.setTransport(val)
	case cmsg.OptRxPathLatency:
		return s.setTrace(val)
	case soTimestamp, soTimestampNew:
		if len(val) != intLen {
			return syscall.EFAULT
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opts.timestamp = opt * truth(int32(host.Uint32(val)))
		return nil
	}
	return syscall.ENOPROTOOPT
}

func (s *Socket) getRDSOption(opt int, buf []byte) (ret, n int, err error) {
	if opt >= infoFirst && opt <= infoLast {
		return s.info(opt, buf)
	}
	var v int
	s.mu.Lock()
	switch opt {
	case cmsg.OptRecvErr:
		if s.opts.recverr {
			v = 1
		}
	case cmsg.OptTransport:
		v = s.opts.transport
	default:
		err = syscall.ENOPROTOOPT
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return 0, 0, err
	case len(buf) < intLen:
		return 0, 0, syscall.EINVAL
	}
	return 0, copy(buf, host.AppendUint32(nil, uint32(v))), nil
}

// parseBool decodes a boolean option. EINVAL: val is shorter than an int.
func parseBool(val []byte) (bool, error) {
	if len(val) < intLen {
		return false, syscall.EINVAL
	}
	return host.Uint32(val) != 0, nil
}

func (s *Socket) setBool(at *bool, val []byte) error {
	on, err := parseBool(val)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*at = on
	return nil
}

// setTransport is SO_RDS_TRANSPORT. EOPNOTSUPP: the socket has a transport already.
// EINVAL: val does not have four bytes, or names no transport. ENOPROTOOPT: it names
// a transport that Linux does not have any more.
func (s *Socket) setTransport(val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opts.transport != cmsg.TransportNone:
		return syscall.EOPNOTSUPP
	case len(val) != intLen:
		return syscall.EINVAL
	}
	switch v := int32(host.Uint32(val)); v {
	case cmsg.TransportIB, cmsg.TransportTCP:
		s.opts.transport = int(v)
		return nil
	case 1:
		return syscall.ENOPROTOOPT
	}
	return syscall.EINVAL
}

func (s *Socket) setTrace(val []byte) error {
	var o cmsg.RxTraceOption
	if err := o.Parse(val); err != nil {
		return errno(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = o
	return nil
}

// setMonitor is RDS_CONG_MONITOR. EINVAL: shorter than an int.
func (s *Socket) setMonitor(val []byte) error {
	on, err := parseBool(val)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.opts.monitor = on
	clear(s.congested)
	if s.rs != nil {
		krds.Of(s.rs).SetCongMonitor(on)
	}
	s.mu.Unlock()
	_, _ = s.repoll()
	return nil
}

// cancelSentTo is RDS_CANCEL_SENT_TO. ENOTCONN: the socket is not bound. EINVAL: val
// is too short.
func (s *Socket) cancelSentTo(val []byte) error {
	rs, err := s.boundSocket()
	switch {
	case err != nil:
		return err
	case len(val) < sockaddr4Len:
		return syscall.EINVAL
	}
	// The length tells the form; the family is not looked at.
	var a address
	if len(val) < sockaddr6Len {
		parse4(val, &a)
	} else {
		parse6(val, &a)
	}
	if !unicast(a.ip) || a.ip.Is4() != rs.LocalAddrPort().Addr().Is4() {
		return nil // nothing can have been sent there
	}
	return errno(rs.CancelSentTo(a.addrPort()))
}
