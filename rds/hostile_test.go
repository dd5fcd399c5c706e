package rds

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
)

// TestReturnOfUnsent: a message id that comes back before its message was
// submitted ends the session. The sender that has set it aside goes on with it.
func TestReturnOfUnsent(t *testing.T) {
	d, a, _ := pair(t, Options{})
	tx, m := &a.c.tx, outMsg{to: stuckAt(1), id: noID, p: make([]byte, 100)}
	tx.mu.Lock()
	err := tx.prepare(a, &m, false)
	tx.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	d.do(func() { d.seg.SendRetProducer().Put(m.id) })
	tx.poll()
	if err := a.c.Err(); !errors.Is(err, ErrSession) {
		t.Error("the session goes on:", err)
	}
	tx.abandon(&m)
}

// TestHandleOfTwo: a daemon that gives a new socket the handle of an open one
// breaks the contract.
func TestHandleOfTwo(t *testing.T) {
	d := newFakeDaemon(Options{}.Params)
	x := &oneHandle{fakeDaemon: d}
	c, err := Open(attach.Through(bg(), attach.Way{Control: x, Wake: d.client}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bindFake(t, c, "127.0.0.1:4000")
	if s, err := c.Bind(stuckAt(2)); s != nil || !errors.Is(err, ErrSession) {
		t.Errorf("a socket %v, %v", s != nil, err)
	}
}

// oneHandle is a Control that gives all sockets the first one's handle.
type oneHandle struct {
	*fakeDaemon
	first *ipc.BindOK
}

func (x *oneHandle) Call(req ipc.Request, fds []int) (ipc.Response, []int, error) {
	if _, is := req.(*ipc.Bind); is && x.first != nil {
		return x.first, nil, nil
	}
	resp, got, err := x.fakeDaemon.Call(req, fds)
	if ok, is := resp.(*ipc.BindOK); is {
		x.first = ok
	}
	return resp, got, err
}
