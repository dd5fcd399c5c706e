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

// openAgain attaches a client that opens again, and returns its events.
func openAgain(t *testing.T, d *rdstest.Daemon, limit time.Duration) (*rds.Client, <-chan *rds.Reopened) {
	t.Helper()
	events := make(chan *rds.Reopened, 10)
	c, err := rds.Open(soon(t), rds.Options{Socket: d.Socket(), Reopen: func(r *rds.Reopened) { events <- r }, ReopenFor: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, events
}

// TestReopen: after a restart of the daemon the client's socket is there again with what
// was set, and what had been received; the buffer has its contents, and the region a new
// cookie.
func TestReopen(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	c, events := openAgain(t, d[0], 0)
	cp := d[1].Open(t)
	s, peer := d[0].Bind(t, c, 4000), d[1].Bind(t, cp, 0)
	if err := errors.Join(s.SetLane(2), s.SetSndBuf(1000), s.SetRcvBuf(2000)); err != nil {
		t.Fatal(err)
	}
	buf, err := c.Alloc(10000)
	if err != nil {
		t.Fatal(err)
	}
	mem := buf.Bytes()
	copy(mem, "contents")
	region, err := s.Register(buf, 0, 10000, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := region.Expose(soon(t), peer.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	was := region.Cookie()
	if _, err := peer.SendTo([]byte("before"), s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(soon(t), rds.WaitSet{Message: true}); err != nil {
		t.Fatal(err)
	}
	if err := d[0].Stop(); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { // waits for the next daemon
		_, err := s.Send(soon(t), &rds.Message{Payload: []byte("again"), Addr: peer.LocalAddrPort()})
		sent <- err
	}()
	d[0].Start(t)
	r := <-events
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if len(r.Sockets) != 1 || r.Sockets[0].Socket != s || r.Sockets[0].Err != nil || len(r.Buffers) != 0 || !errors.Is(r.Cause, rds.ErrDaemonGone) {
		t.Errorf("%+v", r)
	}
	receive(t, s, "before")
	receive(t, peer, "again")
	if _, err := peer.SendTo([]byte("and back"), s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	receive(t, s, "and back")
	if len(r.Regions) != 1 || region.Cookie() == 0 || region.Cookie() == was || r.Regions[region] != nil {
		t.Fatalf("%+v", r.Regions)
	}
	// The region is granted to the peer again, and its memory is what it was.
	local, err := cp.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	read := rds.RDMA{Cookie: region.Cookie(), Local: []rds.Segment{{Buf: local, Len: 8}}}
	if err := peer.RDMARead(soon(t), s.LocalAddrPort(), &read); err != nil || string(local.Bytes()) != "contents" {
		t.Errorf("%q, %v", local.Bytes(), err)
	}
	copy(local.Bytes(), "replaced")
	if err := peer.RDMAWrite(soon(t), s.LocalAddrPort(), &read); err != nil || string(mem[:8]) != "replaced" {
		t.Errorf("%q, %v", mem[:8], err)
	}
	read.Cookie = was
	if err := peer.RDMARead(soon(t), s.LocalAddrPort(), &read); !errors.Is(err, rds.RemoteError) {
		t.Errorf("the old cookie: %v", err)
	}
	if err := errors.Join(region.Release(soon(t)), buf.Free(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestReopenNever: a client whose daemon does not come back waits no longer than it was
// told.
func TestReopenNever(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)
	c, events := openAgain(t, d[0], 50*time.Millisecond)
	s := d[0].Bind(t, c, 4000)
	if err := d[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.RecvFrom(nil); !errors.Is(err, rds.ErrDaemonGone) || !errors.Is(err, rds.ErrNoDaemon) || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if len(events) > 0 {
		t.Error("an event")
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
