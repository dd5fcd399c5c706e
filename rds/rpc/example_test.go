package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// A server on one host and a caller on another.
func Example() {
	daemons, stop, err := rdstest.Start(2) // two hosts; a program has an installed daemon
	check(err)
	defer stop()
	bind := func(d *rdstest.Daemon) *rds.Socket {
		c, err := rds.Open(context.Background(), rds.Options{Socket: d.Socket()})
		check(err)
		s, err := c.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
		check(err)
		return s
	}

	server := bind(daemons[0])
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- rpc.Serve(ctx, server, rpc.Methods{
			"greet": func(_ context.Context, r *rpc.Request) ([]byte, error) {
				if len(r.Body) == 0 {
					return nil, fmt.Errorf("nobody to greet: %w", fs.ErrInvalid)
				}
				return append([]byte("hello "), r.Body...), nil
			},
		}, rpc.ServerOptions{})
	}()

	c := rpc.NewCaller(bind(daemons[1]), rpc.CallerOptions{})
	defer c.Close()
	limit, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	answer, err := c.Call(limit, server.LocalAddrPort(), "greet", []byte("world"))
	check(err)
	fmt.Printf("%s\n", answer)
	_, err = c.Call(limit, server.LocalAddrPort(), "greet", nil)
	var failed *rpc.Error
	fmt.Println(errors.As(err, &failed), failed)
	_, err = c.Call(limit, netip.AddrPortFrom(daemons[0].Addr(), 4321), "greet", nil)
	fmt.Println(errors.Is(err, rpc.ErrNoSocket))

	cancel()
	fmt.Println(<-ended)
	// Output:
	// hello world
	// true nobody to greet: invalid argument
	// true
	// context canceled
}

// An observer is an Interceptor of a few lines, for servers and callers. What it reports can
// go into histograms.
func ExampleInterceptor() {
	observe := func(report func(method string, in, out int, took time.Duration, err error)) rpc.Interceptor {
		return func(next rpc.Handler) rpc.Handler {
			return func(ctx context.Context, r *rpc.Request) ([]byte, error) {
				began := time.Now()
				out, err := next(ctx, r)
				report(r.Method, len(r.Body), len(out), time.Since(began), err)
				return out, err
			}
		}
	}
	daemons, stop, err := rdstest.Start(1)
	check(err)
	defer stop()
	client, err := rds.Open(context.Background(), rds.Options{Socket: daemons[0].Socket()})
	check(err)
	defer client.Close()
	socket, err := client.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
	check(err)
	own, err := client.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
	check(err)

	server := rpc.NewServer(socket, rpc.Methods{"greet": func(_ context.Context, r *rpc.Request) ([]byte, error) {
		return append([]byte("hello "), r.Body...), nil
	}}, rpc.ServerOptions{})
	server.Use(observe(func(method string, in, out int, _ time.Duration, err error) {
		fmt.Println("server:", method, in, out, err)
	}))
	ended := make(chan error)
	go func() { ended <- server.Serve(context.Background()) }()

	c := rpc.NewCaller(own, rpc.CallerOptions{})
	defer c.Close()
	c.Use(observe(func(method string, in, out int, _ time.Duration, err error) {
		fmt.Println("caller:", method, in, out, err)
	}))
	_, err = c.Call(context.Background(), socket.LocalAddrPort(), "greet", []byte("world"))
	check(err)
	check(server.Shutdown(context.Background()))
	fmt.Println(<-ended)
	// Output:
	// server: greet 5 11 <nil>
	// caller: greet 5 11 <nil>
	// server is shut down
}

// A server that ends gracefully at SIGTERM. main waits for Serve alone: it returns when the
// handlers that ran have returned, their answers have arrived and the socket is closed. Shutdown
// then has nothing left to do. Only a program with handlers that do not end with their contexts
// waits for Shutdown instead, which returns after its ten seconds.
func ExampleServer_Shutdown() {
	daemons, stop, err := rdstest.Start(1) // a program has an installed daemon
	check(err)
	defer stop()
	client, err := rds.Open(context.Background(), rds.Options{Socket: daemons[0].Socket()})
	check(err)
	defer client.Close()
	socket, err := client.Bind(netip.MustParseAddrPort("0.0.0.0:0"))
	check(err)
	server := rpc.NewServer(socket, rpc.Methods{}, rpc.ServerOptions{})

	term, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	context.AfterFunc(term, func() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(limit); err != nil {
			fmt.Println("some handlers were cut off:", err)
		}
	})
	check(syscall.Kill(syscall.Getpid(), syscall.SIGTERM)) // as systemd does
	if err := server.Serve(context.Background()); !errors.Is(err, rpc.ErrShutdown) {
		fmt.Println("the server failed:", err)
	}
	fmt.Println("ended")
	// Output:
	// ended
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
