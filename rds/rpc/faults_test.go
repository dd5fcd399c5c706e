package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// TestNoSocket: a call to a port that nobody has bound fails at once, and to one that
// was left, too.
func TestNoSocket(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		if _, err := c.Call(soon(t), netip.AddrPortFrom(d.Addr(), 9), "echo", nil); !errors.Is(err, rpc.ErrNoSocket) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port that nobody has: %v", err)
		}
		at, stop := serve(t, d, rpc.Methods{"echo": echo}, rpc.ServerOptions{})
		if _, err := c.Call(soon(t), at, "echo", nil); err != nil {
			t.Error(err)
		}
		stop()
		if _, err := c.Call(soon(t), at, "echo", nil); !errors.Is(err, rpc.ErrNoSocket) {
			t.Errorf("a server that has ended: %v", err)
		}
		serveAt(t, d, at.Port(), rpc.Methods{"echo": echo}, rpc.ServerOptions{})
		if _, err := c.Call(soon(t), at, "echo", nil); err != nil {
			t.Errorf("the next server: %v", err)
		}
	})
}

// TestServerDies: calls that a server had taken when it died end by the probe, without a
// deadline.
func TestServerDies(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for name, d := range map[string]*rdstest.Daemon{"two hosts": ds[1], "same host": ds[0]} {
		t.Run(name, func(t *testing.T) {
			c := caller(t, ds[0], rpc.CallerOptions{Probe: 10 * time.Millisecond})
			taken := make(chan struct{})
			client := d.Open(t)
			s := d.Bind(t, client, 0)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() {
				_ = rpc.Serve(ctx, s, rpc.Methods{"hang": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
					close(taken)
					<-ctx.Done()
					return nil, ctx.Err()
				}}, rpc.ServerOptions{})
			})
			go func() {
				<-taken
				_ = client.Close() // as the end of the process does
			}()
			if _, err := c.Call(context.Background(), s.LocalAddrPort(), "hang", nil); !errors.Is(err, rpc.ErrNoSocket) {
				t.Errorf("the server died: %v", err)
			}
		})
	}
}

// TestUnreachable: calls to a host without a daemon fail at once, also the second and
// third; what was withdrawn does not run when the daemon comes.
func TestUnreachable(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{})
	if err := ds[1].Stop(); err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(ds[1].Addr(), 4000)
	for range 3 {
		if _, err := c.Call(soon(t), at, "withdrawn", nil); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a host without a daemon: %v", err)
		}
	}
	ds[1].Start(t)
	var ran atomic.Int64
	serveAt(t, ds[1], 4000, rpc.Methods{"withdrawn": func(context.Context, *rpc.Request) ([]byte, error) {
		ran.Add(1)
		return nil, nil
	}, "now": func(context.Context, *rpc.Request) ([]byte, error) { return nil, nil }}, rpc.ServerOptions{})
	ctx := soon(t)
	for { // one that is sent just as the host is reached may fail by what was told before, and run
		_, err := c.Call(ctx, at, "now", nil)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, rpc.ErrNoSocket) && !errors.Is(err, rpc.ErrLost) {
			t.Fatalf("while the daemon comes: %v", err)
		}
	}
	if ran.Load() != 0 {
		t.Errorf("%d requests ran that were withdrawn", ran.Load())
	}
}

// TestDaemonRestarts: a restart of the server's daemon ends the calls there, with a
// reason, and the Caller goes on.
func TestDaemonRestarts(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{Probe: 10 * time.Millisecond})
	taken := make(chan struct{}, 1)
	methods := rpc.Methods{"echo": echo, "hang": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
		taken <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	at, _ := serveAt(t, ds[1], 4000, methods, rpc.ServerOptions{})
	done := make(chan error)
	go func() {
		_, err := c.Call(context.Background(), at, "hang", nil)
		done <- err
	}()
	<-taken
	if err := ds[1].Stop(); err != nil {
		t.Fatal(err)
	}
	ds[1].Start(t)
	serveAt(t, ds[1], 4000, methods, rpc.ServerOptions{})
	var reason rds.Reason
	if err := <-done; !errors.Is(err, rpc.ErrLost) && !errors.Is(err, rpc.ErrNoSocket) && !errors.As(err, &reason) {
		t.Errorf("a call when the daemon restarted: %v", err)
	}
	ctx := soon(t)
	for ctx.Err() == nil {
		if _, err := c.Call(ctx, at, "echo", nil); err == nil {
			return
		}
	}
	t.Error("no call succeeds after the restart")
}

// TestResets: connections that break end no call and run no request twice, large bodies
// aside, whose operations may end as dropped.
func TestResets(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{Probe: 5 * time.Millisecond})
	var ran atomic.Int64
	at, _ := serve(t, ds[1], rpc.Methods{"echo": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		ran.Add(1)
		return r.Body, nil
	}}, rpc.ServerOptions{Queue: 1 << 20})
	var wg sync.WaitGroup
	const callers, each = 8, 300
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				body := bytes.Repeat([]byte{byte(i), byte(j)}, 1+j)
				if got, err := c.Call(soon(t), at, "echo", body); err != nil || !bytes.Equal(got, body) {
					t.Errorf("call %d of %d: %d bytes, %v", j, i, len(got), err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	resets := 0
	for i := 0; ; i++ {
		if _, err := c.Call(soon(t), at, "through", nil); !errors.Is(err, rpc.ErrNoMethod) {
			t.Fatal(err) // the connection was there, and is there again
		}
		select {
		case <-done:
			if ran.Load() != callers*each || resets == 0 {
				t.Errorf("%d requests ran, want %d; %d resets", ran.Load(), callers*each, resets)
			}
			return
		default:
		}
		n, err := ds[i%2].Reset(soon(t), ds[1-i%2].Addr())
		if err != nil {
			t.Fatal(err)
		}
		resets += n
	}
}

// TestLargeResets: with large bodies a call that breaks ends with an error, and one that
// succeeds has the right bytes.
func TestLargeResets(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{Probe: 5 * time.Millisecond})
	at, _ := serve(t, ds[1], rpc.Methods{"echo": echo}, rpc.ServerOptions{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var m *rpc.Memory
		for j := range 30 {
			if m == nil {
				var err error
				if m, err = c.NewMemory(2 << 20); err != nil {
					t.Error(err)
					return
				}
			}
			body := bytes.Repeat([]byte{byte(j), byte(j + 1)}, 1<<20)
			n, err := c.CallInto(soon(t), at, "echo", body, m)
			switch {
			case err != nil:
				if errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if err := m.Free(soon(t)); err != nil {
					t.Error(err)
				}
				m = nil
			case n != len(body) || !bytes.Equal(m.Bytes(), body):
				t.Errorf("call %d: the answer has %d bytes, or is another", j, n)
			}
		}
	}()
	for i := 0; ; i++ {
		if _, err := c.Call(soon(t), at, "echo", nil); err != nil {
			t.Error(err)
		}
		select {
		case <-done:
			return
		default:
		}
		if _, err := ds[i%2].Reset(soon(t), ds[1-i%2].Addr()); err != nil {
			t.Error(err)
		}
	}
}

func TestClose(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := caller(t, d, rpc.CallerOptions{})
	taken := make(chan struct{})
	at, _ := serve(t, d, rpc.Methods{"hang": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
		close(taken)
		<-ctx.Done()
		return nil, nil
	}}, rpc.ServerOptions{})
	done := make(chan error)
	go func() {
		_, err := c.Call(context.Background(), at, "hang", nil)
		done <- err
	}()
	<-taken
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, rds.ErrClosed) {
		t.Errorf("a call in progress: %v", err)
	}
	if _, err := c.Call(context.Background(), at, "hang", nil); !errors.Is(err, rds.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	if err := c.Close(); !errors.Is(err, rds.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
}
