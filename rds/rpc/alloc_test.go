package rpc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/rds/rpc"
	"github.com/rdsd/rdsd/rdstest"
)

// TestAllocs: a small call allocates a bounded number of times, at caller and server
// together.
func TestAllocs(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := caller(t, ds[0], rpc.CallerOptions{})
	at, _ := serve(t, ds[1], rpc.Methods{"echo": echo}, rpc.ServerOptions{})
	ctx := t.Context()
	body := make([]byte, 64)
	call := func() {
		if _, err := c.Call(ctx, at, "echo", body); err != nil {
			t.Fatal(err)
		}
	}
	call()
	least := 1e9
	for range 5 { // the count is the whole process's: the least is what calls need
		least = min(least, testing.AllocsPerRun(100, call))
	}
	t.Logf("%v allocations for a call", least)
	if least > 12 {
		t.Errorf("%v allocations for a call, want at most 12", least)
	}
}

// BenchmarkBare is a round trip without this package, to compare BenchmarkCall with.
func BenchmarkBare(b *testing.B) {
	ds := rdstest.StartDaemons(b, 2)
	from, to := ds[0].Bind(b, ds[0].Open(b), 0), ds[1].Bind(b, ds[1].Open(b), 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 64)
		for {
			n, at, err := to.RecvFrom(p)
			if err != nil {
				return
			}
			_, _ = to.SendTo(p[:n], at)
		}
	}()
	p := make([]byte, 64)
	for b.Loop() {
		if _, err := from.SendTo(p, to.LocalAddrPort()); err != nil {
			b.Fatal(err)
		}
		if _, _, err := from.RecvFrom(p); err != nil {
			b.Fatal(err)
		}
	}
	_ = to.Close()
	<-done
}

// BenchmarkOne is one call after the other.
func BenchmarkOne(b *testing.B) {
	ds := rdstest.StartDaemons(b, 2)
	c := caller(b, ds[0], rpc.CallerOptions{})
	at, stop := serve(b, ds[1], rpc.Methods{"echo": echo}, rpc.ServerOptions{})
	defer stop()
	body := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(context.Background(), at, "echo", body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	ds := rdstest.StartDaemons(b, 2)
	for _, callers := range []int{1, 16} {
		for _, n := range []int{64, 4096} {
			b.Run(fmt.Sprintf("callers=%d/size=%d", callers, n), func(b *testing.B) {
				c := caller(b, ds[0], rpc.CallerOptions{})
				at, stop := serve(b, ds[1], rpc.Methods{"echo": echo}, rpc.ServerOptions{})
				defer stop()
				body := make([]byte, n)
				b.SetParallelism(callers)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := c.Call(context.Background(), at, "echo", body); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
