package daemon

import (
	"context"
	"errors"
	"testing"
)

// TestAskAtTheEnd: an error of ask says that the closure has not run and never
// will, also when the engine ends or the caller's time does at that moment.
func TestAskAtTheEnd(t *testing.T) {
	w := newWorld(t, 1, EngineConfig{})
	d := &Daemon{e: w.es[0], loopDone: make(chan struct{})}
	close(d.loopDone)
	ended, end := context.WithCancel(context.Background())
	end()
	for range 50 {
		for _, ctx := range []context.Context{context.Background(), ended} {
			ran := 0
			d.e.wake = func() { d.e.runPosted() } // the engine's last turn
			if err := d.ask(ctx, func() { ran++ }); err != nil || ran != 1 {
				t.Fatalf("a closure that ran %d times: %v", ran, err)
			}
			d.e.wake = nil // no turn comes any more
			err := d.ask(ctx, func() { ran++ })
			d.e.runPosted()
			if !errors.Is(err, errShutdown) && !errors.Is(err, context.Canceled) || ran != 1 {
				t.Fatalf("a closure that the caller gave up ran: %v", err)
			}
		}
	}
	w.clean()
}
