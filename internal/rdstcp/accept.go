package rdstcp

import (
	"errors"
	"net"
	"time"
)

func (n *Net) accept(ln net.Listener) {
	for {
		err := acceptTo(ln, n.accepted)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as EMFILE: wait for free descriptors
			select {
			case <-time.After(10 * time.Millisecond):
			case <-n.ctx.Done():
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

// accepted leaves a connection for Poll, if its host may connect.
func (n *Net) accepted(tc net.Conn) {
	from := tc.RemoteAddr().(*net.TCPAddr).AddrPort()
	if n.opt.Allowed != nil && !n.opt.Allowed(from.Addr().Unmap()) {
		_ = tc.(*net.TCPConn).SetLinger(0)
		tc.Close()
		return
	}
	if c, err := n.adopt(tc); err == nil {
		c.tap.passive = true
		n.leave(dialed{c: c})
	}
}
