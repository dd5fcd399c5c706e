package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/rdsd/rdsd/bench/worker"
	"github.com/rdsd/rdsd/rds/rpc"
)

// rpcEcho answers each request with its bytes.
func rpcEcho(w *worker.Worker) error { return rpcServe(w, w.Serve) }

// rpcSink is rpcEcho that measures.
func rpcSink(w *worker.Worker) error { return rpcServe(w, w.Count) }

func rpcServe(w *worker.Worker, run func(func() error) error) error {
	c, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer c.Close()
	return run(func() error {
		return rpc.Serve(context.Background(), s, rpc.Methods{"echo": func(_ context.Context, r *rpc.Request) ([]byte, error) {
			w.Msgs.Add(1)
			return r.Body, nil
		}}, rpc.ServerOptions{})
	})
}

// rpcPing makes one call after the other.
func rpcPing(w *worker.Worker) error {
	return rpcCaller(w, func(call func() error) error { return w.Trips(2, call) })
}

// rpcMany makes calls from as many goroutines as the argument says.
func rpcMany(w *worker.Worker) error {
	return rpcCaller(w, func(call func() error) error {
		return w.Serve(func() (first error) {
			var wg sync.WaitGroup
			var once sync.Once
			for range w.Int("callers") {
				wg.Go(func() {
					for {
						if err := call(); err != nil {
							once.Do(func() { first = err })
							return
						}
						w.Msgs.Add(1)
					}
				})
			}
			wg.Wait()
			return first
		})
	})
}

// rpcCaller runs work with a function that makes one call.
func rpcCaller(w *worker.Worker, work func(call func() error) error) error {
	client, s, err := attachOne(w)
	if err != nil {
		return err
	}
	defer client.Close()
	c := rpc.NewCaller(s, rpc.CallerOptions{})
	to, b := netip.MustParseAddrPort(w.Get("addr")), make([]byte, w.Int("size"))
	return work(func() error {
		_, err := c.Call(context.Background(), to, "echo", b)
		return err
	})
}
