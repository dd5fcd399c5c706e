package rdstest_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestReopen: after a restart of the daemon a client attaches anew, and its
// socket is there again with what was set.
func TestReopen(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	c, cp := d[0].Open(t), d[1].Open(t)
	s, peer := d[0].Bind(t, c, 4000), d[1].Bind(t, cp, 0)
	if _, err := c.Reopen(soon(t)); !errors.Is(err, rds.ErrInvalid) {
		t.Errorf("a client that works: %v", err)
	}
	if err := errors.Join(s.SetLane(2), s.SetSndBuf(1000), s.SetRcvBuf(2000), s.Connect(peer.LocalAddrPort())); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.SendTo([]byte("before"), s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(soon(t), rds.WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	if err := d[0].Stop(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	type result struct {
		c   *rds.Client
		err error
	}
	reopened := make(chan result)
	go func() { // no daemon yet
		n, err := c.Reopen(soon(t))
		reopened <- result{n, err}
	}()
	d[0].Start(t)
	got := <-reopened
	if got.err != nil {
		t.Fatal(got.err)
	}
	n := got.c
	t.Cleanup(func() { _ = n.Close() })
	r, err := n.Rebind(s)
	if err != nil {
		t.Fatal(err)
	}
	if r.LocalAddrPort() != s.LocalAddrPort() || r.RemoteAddrPort() != peer.LocalAddrPort() || r.Lane() != 2 || r.SndBuf() != 1000 || r.RcvBuf() != 2000 {
		t.Errorf("%v to %v, lane %d, buffers %d and %d", r.LocalAddrPort(), r.RemoteAddrPort(), r.Lane(), r.SndBuf(), r.RcvBuf())
	}
	receive(t, s, "before") // the old one can still be read
	if _, err := r.Send([]byte("again")); err != nil {
		t.Fatal(err)
	}
	receive(t, peer, "again")
	if _, err := peer.SendTo([]byte("and back"), r.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	receive(t, r, "and back")
	if _, err := n.Rebind(r); !errors.Is(err, rds.ErrInvalid) {
		t.Errorf("a socket that works: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Reopen(soon(t)); !errors.Is(err, rds.ErrInvalid) {
		t.Errorf("a closed client: %v", err)
	}
	// A client whose daemon does not come back waits no longer than it was
	// told.
	if err := d[1].Stop(); err != nil {
		t.Fatal(err)
	}
	<-cp.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := cp.Reopen(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, rds.ErrNoDaemon) {
		t.Error(err)
	}
}

// bindLike binds a socket of c in a lane.
func bindLike(t testing.TB, c *rds.Client, at netip.Addr, lane uint8) *rds.Socket {
	t.Helper()
	s, err := c.Bind(netip.AddrPortFrom(at, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetLane(lane); err != nil {
		t.Fatal(err)
	}
	return s
}
