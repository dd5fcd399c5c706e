package engine

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// errAgain says that a request has to be made again in another turn: the engine
// has done what one turn allows.
var errAgain = errors.New("not yet")

// RingPlace is the place of a control request in the order of what its client submits:
// behind everything that the submission ring held when the request arrived, and ahead of
// later descriptors. So a request can end a socket, a buffer or a region that a descriptor
// ahead of it still names.
type RingPlace struct {
	at      uint64 // of the submission ring
	known   bool
	closing *socket // CloseSock, begun in an earlier turn
}

// passed reports whether the engine has taken what stands ahead of p.
func (p *RingPlace) passed(c *Client) bool {
	return !c.dead && c.sub.Taken(p.at)
}

// behindRing returns nil when everything ahead of p has been handled, and
// errAgain if that takes another turn.
func (cs *clientTable) behindRing(c *Client, p *RingPlace) error {
	if c.dead { // its ring may be unmapped
		return unix.ECONNABORTED
	}
	if !p.known {
		p.known, p.at = true, c.sub.Published()
	}
	if p.passed(c) {
		return nil
	}
	cs.e.tx.pollClient(c)
	switch {
	case c.dead:
		return unix.ECONNABORTED
	case !p.passed(c):
		return errAgain
	}
	return nil
}

// InPlace has ask run f on the engine's goroutine, in a turn after the other
// until the request has its turn, and returns f's error.
func InPlace(ask func(func() error) error, f func(*RingPlace) error) error {
	var p RingPlace
	for {
		if err := ask(func() error { return f(&p) }); err != errAgain {
			return err
		}
	}
}

// Serve answers the control requests that need no memory made or mapped, in
// their place. Errors carry an errno, errAgain excepted.
func (e *Engine) Serve(c *Client, req ipc.Request, p *RingPlace) (ipc.Response, error) {
	if err := e.clients.behindRing(c, p); err != nil {
		return nil, err
	}
	switch r := req.(type) {
	case *ipc.Bind:
		return e.clients.serveBind(c, r)
	case *ipc.CloseSock:
		if p.closing == nil {
			s := c.sock(r.Sock)
			if s != nil && s.txs.N > 0 && !e.sendNow() { // the close of an idle socket does no work of others
				return nil, errAgain
			}
			p.closing = s
		}
		switch s := p.closing; {
		case s == nil:
			return nil, unix.EBADF
		case !e.clients.endSocket(s):
			return nil, errAgain
		}
		return &ipc.OK{}, nil
	case *ipc.Addrs:
		return e.addrs.serveAddrs(), nil
	case *ipc.SetRcvBuf:
		s := c.sock(r.Sock)
		if s == nil {
			return nil, unix.EBADF
		}
		if r.Bytes == 0 {
			return nil, fmt.Errorf("%w: receive buffer of 0 bytes", unix.EINVAL)
		}
		s.limit = int(min(r.Bytes, maxRcvBuf))
		e.rx.checkFull(s) // it may be now
		e.rx.relieve(s)   // or no longer
		return &ipc.OK{}, nil
	case *ipc.Register:
		s, b := c.sock(r.Sock), c.buffers[r.Buffer]
		if s == nil {
			return nil, unix.EBADF
		}
		if b == nil || b.freeing {
			return nil, fmt.Errorf("%w: buffer %d", unix.EINVAL, r.Buffer)
		}
		g, err := e.keys.register(s, b, r.Off, r.Len, r.Access)
		if err != nil {
			return nil, e.clients.unlessEnding(c, err)
		}
		return &ipc.RegisterOK{Region: g.id, Cookie: g.cookie}, nil
	case *ipc.Expose:
		g, err := e.clients.regionOf(c, r.Region)
		if err != nil {
			return nil, err
		}
		return &ipc.OK{}, e.keys.expose(g, r.Addr, r.Port)
	}
	return nil, fmt.Errorf("%w: request %T", unix.EPROTO, req)
}

// ServeLater answers the requests whose answer may be long in coming, in their
// place: done runs when it is there, at once or later, unless there is an error.
func (e *Engine) ServeLater(c *Client, req ipc.Request, p *RingPlace, done func(error)) error {
	if err := e.clients.behindRing(c, p); err != nil {
		return err
	}
	switch r := req.(type) {
	case *ipc.Release:
		g, err := e.clients.regionOf(c, r.Region)
		if err != nil {
			return err
		}
		return e.keys.release(g, done)
	case *ipc.Free:
		b := c.buffers[r.Buffer]
		switch {
		case b == nil || b.freeing:
			return fmt.Errorf("%w: buffer %d", unix.EINVAL, r.Buffer)
		case r.Wait == 0 && b.users > 0:
			return fmt.Errorf("%w: buffer %d has %d regions, operations and payloads", unix.EBUSY, r.Buffer, b.users)
		}
		e.keys.freeBuffer(b, done)
		return nil
	}
	return fmt.Errorf("%w: request %T", unix.EPROTO, req)
}

// unlessEnding is errAgain instead of ENOBUFS while processes of c's user are being
// ended: what they had is its user's again when that is done.
func (cs *clientTable) unlessEnding(c *Client, err error) error {
	if errors.Is(err, unix.ENOBUFS) && c.acct.leaving > 0 {
		return errAgain
	}
	return err
}

const maxRcvBuf = 1 << 30

func (cs *clientTable) serveBind(c *Client, r *ipc.Bind) (ipc.Response, error) {
	e := cs.e
	if e.watch.sockets() >= e.cfg.MaxSockets {
		e.st.C[stats.QuotaRefused]++
		return nil, fmt.Errorf("%w: limits.max_sockets = %d reached", unix.ENOBUFS, e.cfg.MaxSockets)
	}
	if err := e.users.maySocket(c); err != nil {
		return nil, cs.unlessEnding(c, err)
	}
	s, err := e.addrs.bind(c, r.AddrPort(), int(min(r.RcvBuf, maxRcvBuf)))
	if err != nil {
		e.st.C[stats.BindRefused]++
		return nil, err
	}
	return &ipc.BindOK{Sock: s.handle, Addr: s.local.addr, Port: s.port, Inc: s.inc}, nil
}

// regionOf finds a region that belongs to c.
func (cs *clientTable) regionOf(c *Client, id uint32) (*region, error) {
	if r := cs.e.keys.by[id]; r != nil && r.sock.cl == c {
		return r, nil
	}
	return nil, fmt.Errorf("%w: region %#x", unix.EINVAL, id)
}
