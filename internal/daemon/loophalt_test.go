package daemon

import (
	"context"
	"errors"
	"testing"
)

// TestHalt: a halted engine does nothing until it goes on, and what was asked in between is
// answered then. A pause that is given up before the engine stands leaves it at work.
func TestHalt(t *testing.T) {
	d := startDaemon(t, nil)
	for range 3 {
		began := 0
		p, err := d.loop.halt(t.Context(), func() { began++ })
		if err != nil {
			t.Fatal(err)
		}
		turns := d.statistics.Snapshot().Turns.Turns
		answered := make(chan error, 1)
		d.engine.Do(func() { answered <- nil })
		select {
		case <-answered:
			t.Error("a halted engine does what it is asked")
		default:
		}
		if !d.engine.Halted() || d.statistics.Snapshot().Turns.Turns != turns {
			t.Error("a halted engine turns")
		}
		if began != 1 {
			t.Errorf("the pause began %d times", began)
		}
		d.loop.goOn(p)
		<-answered
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := d.loop.halt(ctx, func() {}); err == nil {
		d.loop.goOn(p) // it stood at once
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := d.loop.ask(t.Context(), func() {}); err != nil {
		t.Error(err)
	}
}
