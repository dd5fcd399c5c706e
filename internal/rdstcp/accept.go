package rdstcp

import (
	"context"
	"errors"
	"net"
	"time"
)

func (s *sockets) accept(ctx context.Context, ln net.Listener, accepted func(Socket)) {
	for {
		err := acceptTo(ln, func(c net.Conn) { s.accepted(c, accepted) })
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as EMFILE: wait for free descriptors
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
}

// acceptTo passes a connection to f. A listener that can be stopped knows when f has it.
func acceptTo(ln net.Listener, f func(net.Conn)) error {
	if x, ok := ln.(interface{ AcceptTo(func(net.Conn)) error }); ok {
		return x.AcceptTo(f)
	}
	c, err := ln.Accept()
	if err == nil {
		f(c)
	}
	return err
}

// accepted passes on a connection, if its host may connect.
func (s *sockets) accepted(tc net.Conn, to func(Socket)) {
	if s.opt.Allowed != nil && !s.opt.Allowed(addrOf(tc.RemoteAddr()).Addr()) {
		_ = tc.(*net.TCPConn).SetLinger(0)
		tc.Close()
		return
	}
	if c, err := s.adopt(tc); err == nil {
		to(c)
	}
}
