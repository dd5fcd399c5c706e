package rds

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestCloseBesideClose: Client.Close takes the memory away from a socket whose
// Close is between two of its steps, too.
func TestCloseBesideClose(t *testing.T) {
	_, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	id := write(t, a, to, r, local, true)
	if _, err := a.Barrier(bg(), to.Addr(), id); err != nil {
		t.Fatal(err)
	}
	if err := a.shut(); err != nil {
		t.Fatal(err)
	}
	a.c.rx.remove(a) // finishClose has come so far
	a.c.Close()
	for _, ce := range a.cells {
		if ce.shared != nil {
			t.Error("a mark is still to be read from memory that is unmapped")
		}
	}
	a.c.tx.forgetSocket(a, false)
	if hwm := a.HWM(to.Addr()); hwm != id {
		t.Errorf("mark %d, want %d", hwm, id)
	}
}

// closesAfterBind is a Control with which the client is closed while the answer
// to a Bind is on its way.
type closesAfterBind struct {
	*fakeDaemon
	before func()
}

func (x *closesAfterBind) Call(req ipc.Request, fds []int) (ipc.Response, []int, error) {
	resp, got, err := x.fakeDaemon.Call(req, fds)
	if _, is := req.(*ipc.Bind); is && x.before != nil {
		x.before()
	}
	return resp, got, err
}

// TestCloseBesideBind: a Bind that Client.Close overtakes fails, and what had
// come for the socket is not looked at.
func TestCloseBesideBind(t *testing.T) {
	d := newFakeDaemon(Options{}.Params)
	x := &closesAfterBind{fakeDaemon: d}
	c, err := Open(attach.Through(bg(), attach.Way{Control: x, Wake: d.client}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := bindFake(t, c, "127.0.0.1:4000")
	to := netip.MustParseAddrPort("127.0.0.1:4001")
	x.before = func() {
		if _, err := a.SendTo([]byte("early"), to); err != nil {
			t.Error(err)
		}
		d.do(func() {})
		c.rx.poll()
		if n := c.rx.early.len(); n != 1 {
			t.Errorf("%d events wait for the bind", n)
		}
		c.Close()
	}
	s, err := c.Bind(to)
	if !errors.Is(err, ErrClosed) || s != nil {
		t.Errorf("bind: a socket %v, %v", s != nil, err)
	}
	if s != nil {
		n, _, err := s.RecvFrom(make([]byte, 10))
		t.Errorf("received %d bytes from memory that is unmapped: %v", n, err)
	}
}

// TestOvertakenByClose: a call to the daemon that the socket's Close overtakes
// fails with ErrClosed, whatever the daemon finds missing.
func TestOvertakenByClose(t *testing.T) {
	to := netip.MustParseAddrPort("127.0.0.1:4001")
	for name, x := range map[string]struct {
		errno syscall.Errno // the daemon's
		call  func(a *Socket, buf *Buffer, r *Region) error
	}{
		"register": {syscall.EBADF, func(a *Socket, buf *Buffer, r *Region) error {
			_, err := a.Register(buf, 0, 8, AllowRead)
			return err
		}},
		"receive buffer": {syscall.EBADF, func(a *Socket, buf *Buffer, r *Region) error { return a.SetRcvBuf(1000) }},
		"expose":         {syscall.EINVAL, func(a *Socket, buf *Buffer, r *Region) error { return r.Expose(bg(), to) }},
		"release":        {syscall.EINVAL, func(a *Socket, buf *Buffer, r *Region) error { return r.Release(bg()) }},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, _ := pair(t, Options{})
			buf := mustAlloc(t, a.c, 64)
			r, err := a.Register(buf, 0, 8, AllowRead)
			if err != nil {
				t.Fatal(err)
			}
			d.callHook = func(any) error {
				d.callHook = nil
				_ = a.shut()
				return &ipc.Err{Errno: uint32(x.errno)}
			}
			if err := x.call(a, buf, r); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}
