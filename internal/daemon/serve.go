package daemon

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rdmaop"
	"golang.org/x/sys/unix"
)

// errAgain says that a request has to be made again in another turn: the engine
// has done what one turn allows.
var errAgain = errors.New("not yet")

// serve answers the control requests that need no memory made or mapped.
// Errors carry an errno, errAgain excepted.
func (e *Engine) serve(c *client, req ipc.Request) (ipc.Response, error) {
	if c.dead {
		return nil, unix.ECONNABORTED
	}
	switch r := req.(type) {
	case *ipc.Bind:
		return e.serveBind(c, r)
	case *ipc.CloseSock:
		s := c.sock(r.Sock)
		if s == nil {
			return nil, unix.EBADF
		}
		// What was submitted before the close is handled before it, but not
		// what a client goes on to submit.
		if !s.closing {
			s.closing, s.closeAt = true, c.sub.Published()
		}
		e.pollClient(c)
		switch {
		case c.dead:
			return nil, unix.ECONNABORTED
		case !c.sub.Taken(s.closeAt):
			return nil, errAgain
		}
		e.closeSocket(s)
		return &ipc.OK{}, nil
	case *ipc.SetRcvBuf:
		s := c.sock(r.Sock)
		if s == nil {
			return nil, unix.EBADF
		}
		if r.Bytes == 0 {
			return nil, fmt.Errorf("%w: receive buffer of 0 bytes", unix.EINVAL)
		}
		s.limit = int(min(r.Bytes, maxRcvBuf))
		e.checkFull(s) // it may be now
		e.relieve(s)   // or no longer
		return &ipc.OK{}, nil
	case *ipc.Free:
		b := c.buffers[r.Buffer]
		if b == nil {
			return nil, unix.EINVAL
		}
		var err error
		e.freeBuffer(b, func(x error) { err = x })
		return &ipc.OK{}, err
	case *ipc.Register:
		s, b := c.sock(r.Sock), c.buffers[r.Buffer]
		if s == nil {
			return nil, unix.EBADF
		}
		if b == nil || b.freeing {
			return nil, fmt.Errorf("%w: buffer %d", unix.EINVAL, r.Buffer)
		}
		g, err := e.register(s, b, r.Off, r.Len, rdmaop.Rights(r.Access))
		if err != nil {
			return nil, err
		}
		return &ipc.RegisterOK{Region: g.id, Cookie: g.cookie}, nil
	case *ipc.Expose:
		g, err := e.regionOf(c, r.Region)
		if err != nil {
			return nil, err
		}
		return &ipc.OK{}, e.expose(g, r.Addr.Unmap(), r.Port, g.sock.lane)
	}
	return nil, fmt.Errorf("%w: request %T", unix.EPROTO, req)
}

const maxRcvBuf = 1 << 30

func (e *Engine) serveBind(c *client, r *ipc.Bind) (ipc.Response, error) {
	if e.sockets() >= e.cfg.MaxSockets {
		e.st.C[stats.QuotaRefused]++
		return nil, fmt.Errorf("%w: limits.max_sockets = %d reached", unix.ENOBUFS, e.cfg.MaxSockets)
	}
	if err := e.maySocket(c); err != nil {
		return nil, err
	}
	s, err := e.bind(c, r.AddrPort(), int(min(r.RcvBuf, maxRcvBuf)))
	if err != nil {
		e.st.C[stats.BindRefused]++
		return nil, err
	}
	return &ipc.BindOK{Sock: s.idx, Addr: s.local.addr, Port: s.port, Inc: s.inc}, nil
}

// regionOf finds a region that belongs to c.
func (e *Engine) regionOf(c *client, id uint32) (*region, error) {
	if r := e.regions[id]; r != nil && r.cl == c {
		return r, nil
	}
	return nil, fmt.Errorf("%w: region %#x", unix.EINVAL, id)
}
