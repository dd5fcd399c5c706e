package main

import (
	"context"
	"net/netip"

	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/test/bench/worker"
)

// rpcEcho answers each request with its bytes, within Serve or, where it measures, Count.
func rpcEcho(run func(*worker.Worker, func() error) error) func(*worker.Worker) error {
	how := func(e *end, do step) error {
		return run(e.Worker, func() error {
			_, err := do()
			return err
		})
	}
	return role(how, func(e *end) (step, error) {
		return func() (int, error) {
			return 0, rpc.Serve(context.Background(), e.s, rpc.Methods{"echo": func(_ context.Context, r *rpc.Request) ([]byte, error) {
				e.Msgs.Add(1)
				return r.Body, nil
			}}, rpc.ServerOptions{})
		}, nil
	})
}

// rpcCall makes one call.
func rpcCall(e *end) (step, error) {
	c := rpc.NewCaller(e.s, rpc.CallerOptions{})
	to, b := netip.MustParseAddrPort(e.Get("addr")), make([]byte, e.Int("size"))
	return func() (int, error) {
		_, err := c.Call(context.Background(), to, "echo", b)
		return 1, err
	}, nil
}

// together makes calls from many goroutines.
func together(e *end, do step) error { return e.Together(do) }
