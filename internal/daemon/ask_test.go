package daemon

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs/sim"
)

// TestAskAtTheEnd: an error of ask says that the closure has not run and never
// will, also when the engine ends or the caller's time does at that moment.
func TestAskAtTheEnd(t *testing.T) {
	block, err := stats.NewBlock(make([]uint64, stats.Size/8+1), stats.Info{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(sim.NewNetwork(1).Device(netip.MustParseAddr("127.0.0.1")), engine.Config{Instance: 1, RecvBufs: 256, SendBufs: 64,
		Alloc: func(n int) []byte { return make([]byte, n) }}, block)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{engine: e, done: make(chan struct{})}
	close(l.done)
	ended, end := context.WithCancel(context.Background())
	end()
	for range 50 {
		for _, ctx := range []context.Context{context.Background(), ended} {
			ran := 0
			e.DrivenBy(func() { e.Turn(1, 1) }, 0) // the engine's last turn
			if err := l.ask(ctx, func() { ran++ }); err != nil || ran != 1 {
				t.Fatalf("a closure that ran %d times: %v", ran, err)
			}
			e.DrivenBy(nil, 0) // no turn comes any more
			err := l.ask(ctx, func() { ran++ })
			e.Turn(1, 1)
			if !errors.Is(err, errShutdown) && !errors.Is(err, context.Canceled) || ran != 1 {
				t.Fatalf("a closure that the caller gave up ran: %v", err)
			}
		}
	}
}
