package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// patience is far longer than anything here takes.
const patience = time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// serve runs a server on d and returns where it is. It ends with the test, or with stop.
func serve(t testing.TB, d *rdstest.Daemon, m rpc.Methods, o rpc.ServerOptions) (at netip.AddrPort, stop func()) {
	t.Helper()
	return serveAt(t, d, 0, m, o)
}

func serveAt(t testing.TB, d *rdstest.Daemon, port uint16, m rpc.Methods, o rpc.ServerOptions) (at netip.AddrPort, stop func()) {
	t.Helper()
	s := d.Bind(t, d.Open(t), port)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rpc.Serve(ctx, s, m, o); err == nil {
			t.Error("Serve ended without a reason")
		}
		_ = s.Close()
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return s.LocalAddrPort(), stop
}

func caller(t testing.TB, d *rdstest.Daemon, o rpc.CallerOptions) *rpc.Caller {
	t.Helper()
	c := rpc.NewCaller(d.Bind(t, d.Open(t), 0), o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// between runs f with a caller and a daemon for the server, on two hosts and on one.
func between(t *testing.T, f func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon)) {
	ds := rdstest.StartDaemons(t, 2)
	for name, d := range map[string]*rdstest.Daemon{"two hosts": ds[1], "same host": ds[0]} {
		t.Run(name, func(t *testing.T) { f(t, caller(t, ds[0], rpc.CallerOptions{}), d) })
	}
}

func echo(_ context.Context, r *rpc.Request) ([]byte, error) { return r.Body, nil }

func TestCall(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		at, _ := serve(t, d, rpc.Methods{"echo": echo, "fail": func(context.Context, *rpc.Request) ([]byte, error) {
			return nil, fmt.Errorf("no such key: %w", syscall.ENOENT)
		}}, rpc.ServerOptions{MaxRequest: 5 << 20})
		for _, n := range []int{0, 1, 1000, 32 << 10, 128 << 10, 128<<10 + 1, 300 << 10, 3 << 20} {
			body := bytes.Repeat([]byte("0123456789abc"), n/13+1)[:n]
			got, err := c.Call(soon(t), at, "echo", body)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("echo of %d bytes: %d bytes, %v", n, len(got), err)
			}
		}
		var failed *rpc.Error
		if _, err := c.Call(soon(t), at, "fail", nil); !errors.Is(err, syscall.ENOENT) || !errors.As(err, &failed) || failed.Text != "no such key: no such file or directory" {
			t.Errorf("an error of the handler: %v", err)
		}
		var call *rpc.CallError
		if _, err := c.Call(soon(t), at, "none", nil); !errors.Is(err, rpc.ErrNoMethod) || !errors.As(err, &call) || call.To != at || call.Method != "none" {
			t.Errorf("a method that is not there: %v", err)
		}
		if _, err := c.Call(soon(t), at, "echo", make([]byte, 5<<20+1)); !errors.Is(err, rpc.ErrTooLarge) {
			t.Errorf("a request too large: %v", err)
		}
		if _, err := c.Call(soon(t), at, string(make([]byte, 256)), nil); !errors.Is(err, rds.ErrInvalid) {
			t.Errorf("a method too long: %v", err)
		}
	})
}

// TestEvery: a server has the methods that every server has, or its own instead.
func TestEvery(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := caller(t, d, rpc.CallerOptions{})
	plain, _ := serve(t, d, nil, rpc.ServerOptions{})
	own, _ := serve(t, d, rpc.Methods{"echo": echo, rpc.MethodHealth: echo}, rpc.ServerOptions{})
	for _, tt := range []struct {
		at           netip.AddrPort
		method, want string
	}{
		{plain, rpc.MethodHealth, "serving"},
		{plain, rpc.MethodList, "rpc.health\nrpc.methods\n"},
		{own, rpc.MethodHealth, ""},
		{own, rpc.MethodList, "echo\nrpc.health\nrpc.methods\n"},
	} {
		if got, err := c.Call(soon(t), tt.at, tt.method, nil); err != nil || string(got) != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.method, got, err, tt.want)
		}
	}
}

func TestCallInto(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		var n atomic.Int64
		at, _ := serve(t, d, rpc.Methods{"get": func(context.Context, *rpc.Request) ([]byte, error) {
			return bytes.Repeat([]byte{byte(n.Load())}, int(n.Load())), nil
		}}, rpc.ServerOptions{})
		m, err := c.NewMemory(3 << 20)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, 32 << 10, 32<<10 + 1, 1 << 20, 1<<20 + 1, 3 << 20} {
			n.Store(int64(size))
			got, err := c.CallInto(soon(t), at, "get", nil, m)
			if err != nil || got != size || !bytes.Equal(m.Bytes()[:got], bytes.Repeat([]byte{byte(size)}, size)) {
				t.Errorf("%d bytes: %d, %v", size, got, err)
			}
		}
		n.Store(3<<20 + 1)
		if _, err := c.CallInto(soon(t), at, "get", nil, m); !errors.Is(err, rpc.ErrTooLarge) {
			t.Errorf("an answer too large: %v", err)
		}
		if _, err := c.CallInto(soon(t), at, "get", nil, m); !errors.Is(err, rpc.ErrMemory) {
			t.Errorf("memory after an error: %v", err)
		}
		if err := m.Free(soon(t)); err != nil {
			t.Error(err)
		}
		if _, err := c.CallInto(soon(t), at, "get", nil, m); !errors.Is(err, rpc.ErrMemory) {
			t.Errorf("memory after Free: %v", err)
		}
	})
}

// TestDeadline: the caller's deadline is the handler's, and ends both. So does a caller
// that gives up.
func TestDeadline(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		type handled struct {
			began chan struct{}
			ended chan error
		}
		handler := func(deadline bool) (handled, rpc.Handler) {
			h := handled{make(chan struct{}, 64), make(chan error, 64)} // as many as there are calls, at most
			return h, func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
				if _, has := ctx.Deadline(); has != deadline {
					t.Errorf("a deadline at the handler: %v, want %v", has, deadline)
				}
				h.began <- struct{}{}
				<-ctx.Done()
				h.ended <- ctx.Err()
				return nil, ctx.Err()
			}
		}
		timed, timedHandler := handler(true)
		untimed, untimedHandler := handler(false)
		at, _ := serve(t, d, rpc.Methods{"timed": timedHandler, "untimed": untimedHandler}, rpc.ServerOptions{})

		// On a busy machine a deadline can pass before the request gets to the handler.
		for after := 20 * time.Millisecond; len(timed.began) == 0; after *= 2 {
			if after > patience {
				t.Fatal("no request got to the handler")
			}
			ctx, cancel := context.WithTimeout(context.Background(), after)
			var call *rpc.CallError
			if _, err := c.Call(ctx, at, "timed", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &call) || !call.Timeout() {
				t.Errorf("the caller: %v", err)
			}
			cancel()
		}
		<-timed.ended // by its deadline or because the caller says so, whichever is first

		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-untimed.began
			cancel()
		}()
		if _, err := c.Call(ctx, at, "untimed", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that gives up: %v", err)
		}
		if err := <-untimed.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the handler: %v", err)
		}
		if _, err := c.Call(ctx, at, "untimed", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// TestBounded: no more handlers run than may, no more requests wait than may, and each
// call has its own answer.
func TestBounded(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		const handlers, queue, calls = 3, 4, 20
		var running, most atomic.Int64
		began := make(chan struct{}, calls)
		full := make(chan struct{})
		release := make(chan struct{})
		at, _ := serve(t, d, rpc.Methods{"hold": func(_ context.Context, r *rpc.Request) ([]byte, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			began <- struct{}{}
			<-release
			return r.Body, nil
		}}, rpc.ServerOptions{Handlers: handlers, PerCaller: handlers, Queue: queue})
		var wg sync.WaitGroup
		var busy, good atomic.Int64
		for i := range calls {
			wg.Go(func() {
				got, err := c.Call(soon(t), at, "hold", []byte{byte(i)})
				switch {
				case errors.Is(err, rpc.ErrBusy):
					if busy.Add(1) == calls-handlers-queue {
						close(full)
					}
				case err != nil || len(got) != 1 || got[0] != byte(i):
					t.Errorf("call %d: %v, %v", i, got, err)
				default:
					good.Add(1)
				}
			})
		}
		<-full
		for range handlers {
			<-began
		}
		close(release)
		wg.Wait()
		if most.Load() != handlers || good.Load() != handlers+queue {
			t.Errorf("%d handlers at once, %d calls answered, %d busy", most.Load(), good.Load(), busy.Load())
		}
	})
}

// TestShares: a caller that asks for more than its part of the handlers and of the queue
// leaves the rest to others, and those that wait take turns.
func TestShares(t *testing.T) {
	between(t, func(t *testing.T, greedy *rpc.Caller, d *rdstest.Daemon) {
		const handlers, per, queue, calls = 4, 3, 8, 30
		hold, began := make(chan struct{}), make(chan struct{}, calls)
		at, _ := serve(t, d, rpc.Methods{
			"hold": func(context.Context, *rpc.Request) ([]byte, error) {
				began <- struct{}{}
				<-hold
				return nil, nil
			},
			"echo": echo,
		}, rpc.ServerOptions{Handlers: handlers, Queue: queue})
		var wg sync.WaitGroup
		full := make(chan struct{})
		var busy atomic.Int64
		for range calls {
			wg.Go(func() {
				if _, err := greedy.Call(soon(t), at, "hold", nil); errors.Is(err, rpc.ErrBusy) {
					if busy.Add(1) == calls-per-(queue-1) {
						close(full)
					}
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		<-full
		for range per {
			<-began
		}
		other := caller(t, d, rpc.CallerOptions{})
		for i := range 20 {
			if _, err := other.Call(soon(t), at, "echo", []byte{byte(i)}); err != nil {
				t.Fatalf("call %d of another caller: %v", i, err)
			}
		}
		if n := len(began); n != 0 {
			t.Errorf("%d more of one caller run", n)
		}
		close(hold)
		wg.Wait()
		if n := len(began); n != queue-1 {
			t.Errorf("%d of those that waited ran, want %d", n, queue-1)
		}
	})
}

// TestMany: calls from many goroutines, of all sizes, each get their own answer.
func TestMany(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		at, _ := serve(t, d, rpc.Methods{"echo": echo}, rpc.ServerOptions{Handlers: 4, Queue: 1 << 20})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 60 {
					body := bytes.Repeat([]byte{byte(i), byte(j)}, 1+(i*j*j*37)%200)
					if j == 50 {
						body = bytes.Repeat(body, 1000)
					}
					if got, err := c.Call(soon(t), at, "echo", body); err != nil || !bytes.Equal(got, body) {
						t.Errorf("call %d of %d: %d bytes for %d, %v", j, i, len(got), len(body), err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
