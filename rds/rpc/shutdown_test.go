package rpc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// server runs a server on d that the test ends itself. ended has what Serve returned.
func server(t testing.TB, d *rdstest.Daemon, m rpc.Methods, o rpc.ServerOptions) (v *rpc.Server, at netip.AddrPort, ended chan error) {
	t.Helper()
	s := d.Bind(t, d.Open(t), 0)
	v, ended = rpc.NewServer(s, m, o), make(chan error, 1)
	go func() { ended <- v.Serve(context.Background()) }()
	return v, s.LocalAddrPort(), ended
}

// never has a caller that learns of nothing by its own questions.
var never = rpc.CallerOptions{Probe: time.Hour}

// TestShutdown: requests that run are answered, and those that wait or come are refused.
func TestShutdown(t *testing.T) {
	between(t, func(t *testing.T, c *rpc.Caller, d *rdstest.Daemon) {
		began, release, refused := make(chan struct{}), make(chan struct{}), make(chan string, 4)
		v, at, ended := server(t, d, rpc.Methods{"hold": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
			began <- struct{}{}
			<-release
			return []byte("done"), ctx.Err()
		}}, rpc.ServerOptions{Handlers: 1, Queue: 1, Refused: func(r *rpc.Request, err error) {
			refused <- r.Method + " " + rpc.Outcome(err)
		}})
		type outcome struct {
			answer string
			err    error
		}
		call := func() chan outcome {
			done := make(chan outcome, 1)
			go func() {
				b, err := c.Call(context.Background(), at, "hold", nil)
				done <- outcome{string(b), err}
			}()
			return done
		}
		first := call()
		<-began
		waits, busy := call(), call()
		select { // one of the two waits when the other is refused
		case o := <-waits:
			waits, busy = busy, waits
			busy <- o
		case o := <-busy:
			busy <- o
		}
		if o := <-busy; !errors.Is(o.err, rpc.ErrBusy) || errors.Is(o.err, rpc.ErrShutdown) {
			t.Errorf("a call beyond the queue: %v", o.err)
		}
		down := make(chan error)
		go func() { down <- v.Shutdown(soon(t)) }()
		if o := <-waits; !errors.Is(o.err, rpc.ErrShutdown) || !errors.Is(o.err, syscall.ESHUTDOWN) {
			t.Errorf("a call that waited: %v", o.err)
		}
		if _, err := c.Call(context.Background(), at, "hold", nil); !errors.Is(err, rpc.ErrShutdown) {
			t.Errorf("a call that came: %v", err)
		}
		if _, err := c.Call(context.Background(), at, "none", nil); !errors.Is(err, rpc.ErrShutdown) {
			t.Errorf("a call of a method that is not there: %v", err)
		}
		for _, want := range []string{"hold busy", "hold shutdown", "hold shutdown", "none shutdown"} {
			if got := <-refused; got != want {
				t.Errorf("Refused: %q, want %q", got, want)
			}
		}
		close(release)
		if o := <-first; o.err != nil || o.answer != "done" {
			t.Errorf("the call that ran: %q, %v", o.answer, o.err)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-ended; !errors.Is(err, rpc.ErrShutdown) {
			t.Errorf("Serve: %v", err)
		}
		if _, err := c.Call(context.Background(), at, "hold", nil); !errors.Is(err, rpc.ErrNoSocket) {
			t.Errorf("a call afterwards: %v", err)
		}
		if err := v.Shutdown(soon(t)); err != nil {
			t.Errorf("a second Shutdown: %v", err)
		}
	})
}

// TestShutdownCut: when the context of Shutdown ends, so do those of handlers, and callers
// learn it at once, though the handlers do not return.
func TestShutdownCut(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], never)
	began, release := make(chan context.Context), make(chan struct{})
	v, at, ended := server(t, ds[1], rpc.Methods{"hang": func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
		began <- ctx
		<-release
		return nil, nil
	}}, rpc.ServerOptions{})
	done := make(chan error)
	go func() {
		_, err := c.Call(context.Background(), at, "hang", nil)
		done <- err
	}()
	handler := <-began
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := v.Shutdown(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-done; !errors.Is(err, rpc.ErrLost) {
		t.Errorf("the call: %v", err)
	}
	<-handler.Done()
	if _, err := c.Call(context.Background(), at, "hang", nil); !errors.Is(err, rpc.ErrShutdown) {
		t.Errorf("a call while a handler hangs: %v", err)
	}
	close(release)
	if err := <-ended; !errors.Is(err, rpc.ErrShutdown) {
		t.Errorf("Serve: %v", err)
	}
}

// TestServeEnds: what handlers answer after Serve's context has ended gets to the callers.
func TestServeEnds(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{Probe: 10 * time.Millisecond})
	began := make(chan struct{}, 2)
	at, stop := serve(t, ds[1], rpc.Methods{"late": func(ctx context.Context, r *rpc.Request) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		if len(r.Body) > 0 {
			return nil, ctx.Err()
		}
		return []byte("late"), nil
	}}, rpc.ServerOptions{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if b, err := c.Call(context.Background(), at, "late", nil); err != nil || string(b) != "late" {
			t.Errorf("an answer: %q, %v", b, err)
		}
	})
	wg.Go(func() {
		var failed *rpc.Error
		if _, err := c.Call(context.Background(), at, "late", []byte("fail")); !errors.As(err, &failed) || failed.Errno != syscall.ESHUTDOWN {
			t.Errorf("an error: %v", err)
		}
	})
	<-began
	<-began
	stop()
	wg.Wait()
}

// TestShutdownBeforeServe: a Server that was shut down does not begin.
func TestShutdownBeforeServe(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	v := rpc.NewServer(d.Bind(t, d.Open(t), 0), nil, rpc.ServerOptions{})
	if err := v.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := v.Serve(soon(t)); !errors.Is(err, rpc.ErrShutdown) {
			t.Errorf("Serve: %v", err)
		}
	}
}

// TestShutdownLoad: of a server that ends under load, each call that ran has its answer,
// and each other one an error, without a deadline.
func TestShutdownLoad(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	for name, d := range map[string]*rdstest.Daemon{"two hosts": ds[1], "same host": ds[0]} {
		t.Run(name, func(t *testing.T) {
			var ran sync.Map
			enough := make(chan struct{}, 1<<16)
			v, at, ended := server(t, d, rpc.Methods{"run": func(ctx context.Context, r *rpc.Request) ([]byte, error) {
				ran.Store(binary.LittleEndian.Uint64(r.Body), true)
				select {
				case enough <- struct{}{}:
				default:
				}
				return append(r.Body, make([]byte, 1+int(r.Body[0])*1000)...), nil // up to two parts
			}}, rpc.ServerOptions{Handlers: 4})
			var wg sync.WaitGroup
			for i := range 3 {
				c := caller(t, ds[0], rpc.CallerOptions{Probe: 10 * time.Millisecond})
				for j := range 8 {
					wg.Go(func() {
						for k := uint64(i<<40 | j<<32); ; k++ {
							body := binary.LittleEndian.AppendUint64(nil, k)
							b, err := c.Call(context.Background(), at, "run", body)
							_, did := ran.Load(k)
							switch {
							case err == nil && did && binary.LittleEndian.Uint64(b) == k:
								continue
							case did || !errors.Is(err, rpc.ErrShutdown) && !errors.Is(err, rpc.ErrNoSocket) && !errors.Is(err, rpc.ErrLost):
								t.Errorf("call %x ran: %v, and its error is %v", k, did, err)
							}
							return
						}
					})
				}
			}
			for range 500 {
				<-enough
			}
			if err := v.Shutdown(soon(t)); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			wg.Wait()
			if err := <-ended; !errors.Is(err, rpc.ErrShutdown) {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}
