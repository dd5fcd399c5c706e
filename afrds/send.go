package afrds

import (
	"context"
	"errors"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/rds"
)

const msgZeroCopy = 0x4000000 // MSG_ZEROCOPY

// Sendmsg is sendmsg(2). It queues payload for delivery to name, or to the connected
// address if name is nil, with what control says. It returns the length of the
// payload. Success means queued, not delivered.
//
// Errors, in this order:
//
//   - EOPNOTSUPP: a flag other than MSG_DONTWAIT and MSG_ZEROCOPY.
//   - EINVAL: a malformed name, or an address that no message can go to.
//   - ENOTCONN: not bound, or no destination.
//   - EOPNOTSUPP: the other address family.
//   - EINVAL: malformed control data.
//   - EMSGSIZE: a payload above 1 MiB or the send buffer.
//   - the errors of the control messages.
//   - ENOBUFS: the destination is congested, or a limit of the daemon.
//   - EAGAIN: the send buffer is full.
//
// Instead of the last two a blocking socket waits, at most for SO_SNDTIMEO
// (ETIMEDOUT) and until Interrupt (EINTR). A call that fails has no effect.
//
// Source: net/rds/send.c rds_sendmsg.
func (s *Socket) Sendmsg(payload, name, control []byte, flags int) (int, error) {
	if flags&^(syscall.MSG_DONTWAIT|msgZeroCopy) != 0 {
		return 0, syscall.EOPNOTSUPP
	}
	rs, to, err := s.destination(name)
	if err != nil {
		return 0, err
	}
	if err := checkChain(control); err != nil {
		return 0, err
	}
	if err := s.checkSize(len(payload), flags); err != nil {
		return 0, err
	}
	if err := s.k.sizes(control); err != nil {
		return 0, err
	}
	o := &outgoing{flags: flags, payload: payload, m: rds.Message{Payload: payload, Addr: to}}
	if err := s.checkZeroCopy(flags, control); err != nil {
		return 0, err
	}
	err = s.process(rs, o, control)
	if err == nil {
		err = s.submit(rs, o)
	}
	if err != nil {
		s.undo(o)
		return 0, err
	}
	if o.mapped != nil {
		s.own(o.mapped, o.ctl.Map.Flags, o.m.Addr.Addr())
	}
	return len(payload), nil
}

// destination checks name and returns where the message goes.
func (s *Socket) destination(name []byte) (*rds.Socket, netip.AddrPort, error) {
	var a address
	if len(name) > 0 {
		var err error
		if len(name) < sockaddr4Len {
			return nil, netip.AddrPort{}, syscall.EINVAL
		}
		if a, err = parse(name, syscall.EINVAL); err != nil {
			return nil, netip.AddrPort{}, err
		}
		if !unicast(a.ip) || a.needsScope() {
			return nil, netip.AddrPort{}, syscall.EINVAL
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	named := a.family != 0
	if !named {
		a = s.peer
	}
	switch {
	case s.closed:
		return nil, netip.AddrPort{}, syscall.EBADF
	case s.rs == nil || a.family == 0:
		return nil, netip.AddrPort{}, syscall.ENOTCONN
	case a.ip.Is4() != s.bound.ip.Is4():
		return nil, netip.AddrPort{}, syscall.EOPNOTSUPP
	case named && s.otherScope(&a):
		return nil, netip.AddrPort{}, syscall.EINVAL
	}
	return s.rs, a.addrPort(), nil
}

// checkSize checks the length n of a payload. EMSGSIZE: above 1 MiB or the send
// buffer. EOPNOTSUPP: zero copy on a socket that chose IB.
func (s *Socket) checkSize(n, flags int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n > cmsg.MaxMessage, n > s.opts.sndbuf/2:
		return syscall.EMSGSIZE
	case flags&msgZeroCopy != 0 && s.opts.zerocopy != 0 && s.opts.transport == cmsg.TransportIB:
		return syscall.EOPNOTSUPP
	}
	return nil
}

// checkZeroCopy returns EINVAL for MSG_ZEROCOPY without a cookie.
func (s *Socket) checkZeroCopy(flags int, control []byte) error {
	if flags&msgZeroCopy == 0 {
		return nil
	}
	for {
		m, rest, ok, err := cmsg.Next(control)
		if err != nil || !ok {
			return syscall.EINVAL
		}
		if m.Level == cmsg.SOLRDS && m.Type == cmsg.TypeZcopyCookie {
			return nil
		}
		control = rest
	}
}

// submit queues the message. It waits as the mode of the socket says.
func (s *Socket) submit(rs *rds.Socket, o *outgoing) error {
	ctx, cancel := s.patience(o.flags, &s.opts.sndtimeo)
	defer cancel()
	_, err := rs.Send(ctx, &o.m)
	if errors.Is(err, rds.ErrCongested) {
		s.metCongestion(o.m.Addr)
	}
	return s.waited(ctx, err)
}

// maxCongested limits how many destinations poll remembers.
const maxCongested = 1024

// metCongestion makes poll report when the destination is free again. With the
// congestion monitor, package rds reports it.
func (s *Socket) metCongestion(to netip.AddrPort) {
	s.mu.Lock()
	n := len(s.congested)
	if !s.opts.monitor && n < maxCongested {
		s.congested[to] = struct{}{}
	}
	met := len(s.congested) > n
	s.mu.Unlock()
	if met {
		_, _ = s.repoll()
	}
}

// undo takes back the effects of a send that failed.
func (s *Socket) undo(o *outgoing) {
	s.mu.Lock()
	for _, t := range o.tokens {
		delete(s.ops, t)
	}
	s.mu.Unlock()
	if o.mapped != nil {
		// Nobody was told of the key, so this does not wait.
		_ = o.mapped.Release(context.Background())
	}
}
