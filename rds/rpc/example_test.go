package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/netip"
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

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
