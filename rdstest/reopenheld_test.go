package rdstest_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/attach"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// heldControl is a control connection whose answers a test sees before the client does.
type heldControl struct {
	ipc.Control
	daemon   int // how many were before
	answered func(daemon int, req ipc.Request)
}

func (h *heldControl) Call(req ipc.Request, fds []int) (ipc.Response, []int, error) {
	resp, got, err := h.Control.Call(req, fds)
	h.answered(h.daemon, req)
	return resp, got, err
}

// openHeld attaches a client that opens again. answered is called behind each answer, also
// while the client opens again.
func openHeld(t *testing.T, d *rdstest.Daemon, answered func(daemon int, req ipc.Request)) (*rds.Client, <-chan *rds.Reopened) {
	t.Helper()
	next := 0
	again := func(ctx context.Context) (attach.Way, error) {
		ctl, err := ipc.ResolveDial(ctx, d.Socket())
		if err != nil {
			return attach.Way{}, err
		}
		h := &heldControl{ctl, next, answered}
		next++
		return attach.Way{Control: h}, nil
	}
	way, err := again(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	way.Again = again
	events := make(chan *rds.Reopened, 10)
	c, err := rds.Open(attach.Through(soon(t), way), rds.Options{Reopen: func(r *rds.Reopened) { events <- r }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, events
}

func restart(t *testing.T, d *rdstest.Daemon) {
	t.Helper()
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d.Start(t)
}

// target makes a buffer and a region of all of it.
func target(t *testing.T, c *rds.Client, s *rds.Socket) (*rds.Buffer, *rds.Region) {
	t.Helper()
	b, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Register(b, 0, 4096, rds.AllowRead|rds.AllowWrite)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

// TestReopenFreed: a buffer can be freed while the next daemon has it, with a region,
// and the client has not changed over.
func TestReopenFreed(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)
	var buf *rds.Buffer
	c, events := openHeld(t, d[0], func(daemon int, req ipc.Request) {
		if _, is := req.(*ipc.Register); is && daemon == 1 {
			if err := buf.Free(); err != nil {
				t.Error(err)
			}
			if err := buf.Free(); !errors.Is(err, rds.ErrClosed) {
				t.Errorf("freed twice: %v", err)
			}
		}
	})
	s := d[0].Bind(t, c, 0)
	buf, region := target(t, c, s)
	restart(t, d[0])
	r := <-events
	if len(r.Buffers) != 0 || len(r.Regions) != 1 || region.Cookie() != 0 || !errors.Is(r.Regions[region], rds.ErrDaemonGone) {
		t.Errorf("%+v", r)
	}
	if err := region.Release(soon(t)); !errors.Is(err, rds.ErrClosed) {
		t.Errorf("release of a region that has ended: %v", err)
	}
}

// TestReopenMadeLate: what the old daemon made as the last thing, and the client notes
// when the next one has been asked for the rest, goes on, too.
func TestReopenMadeLate(t *testing.T) {
	for _, what := range []string{"socket", "region"} {
		t.Run(what, func(t *testing.T) {
			d := rdstest.StartDaemons(t, 1)
			asked, made := make(chan struct{}), make(chan struct{})
			late := false
			c, events := openHeld(t, d[0], func(daemon int, req ipc.Request) {
				_, bind := req.(*ipc.Bind)
				_, register := req.(*ipc.Register)
				switch {
				case daemon == 0 && late && (bind || register):
					close(made)
					<-asked
				case daemon == 1 && bind && late:
					late = false
					close(asked)
				}
			})
			s := d[0].Bind(t, c, 0)
			buf, err := c.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			late = true
			var region *rds.Region
			second := s
			done := make(chan error, 1)
			go func() {
				var err error
				if what == "socket" {
					second, err = c.Bind(netip.AddrPortFrom(d[0].Addr(), 0))
				} else {
					region, err = s.Register(buf, 0, 4096, rds.AllowRead)
				}
				done <- err
			}()
			<-made
			restart(t, d[0])
			r := <-events
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if what == "region" && (len(r.Regions) != 1 || region.Cookie() == 0) {
				t.Errorf("%+v", r.Regions)
			}
			if what == "socket" && len(r.Sockets) != 2 {
				t.Errorf("%+v", r.Sockets)
			}
			if _, err := second.SendTo([]byte("x"), s.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
			receive(t, s, "x")
		})
	}
}

// TestReopenStuck: Close does not wait for a daemon that does not answer behind the
// change-over.
func TestReopenStuck(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)
	stuck, closed := make(chan struct{}), make(chan struct{})
	c, _ := openHeld(t, d[0], func(daemon int, req ipc.Request) {
		if _, is := req.(*ipc.Expose); is && daemon == 1 {
			close(stuck)
			<-closed
		}
	})
	s := d[0].Bind(t, c, 0)
	_, region := target(t, c, s)
	if err := region.Expose(soon(t), netip.AddrPortFrom(d[0].Addr(), 7)); err != nil {
		t.Fatal(err)
	}
	restart(t, d[0])
	<-stuck
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(closed)
}

// TestReopenDescriptors: a client that opens again a hundred times has as many descriptors
// and mappings as before.
func TestReopenDescriptors(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)
	c, events := openAgain(t, d[0], 0)
	s := d[0].Bind(t, c, 0)
	_, region := target(t, c, s)
	if err := region.Expose(soon(t), s.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	var first counts
	for i := range 101 {
		restart(t, d[0])
		if r := <-events; r.Sockets[0].Err != nil || len(r.Buffers) != 0 || len(r.Regions) != 1 || r.Regions[region] != nil {
			t.Fatalf("%+v", r)
		}
		if _, err := s.SendTo([]byte("x"), s.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		receive(t, s, "x")
		if i == 0 {
			first = count()
		}
	}
	if n := count(); n.fds > first.fds+4 || n.maps > first.maps+4 {
		t.Errorf("%+v, after the first time %+v", n, first)
	}
}
