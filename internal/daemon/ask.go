package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// ask runs f on the engine's thread and waits for it. After an error f has not run and
// never will. Any goroutine but the engine's may call it.
func (l *loop) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	var taken atomic.Bool // by the engine, which runs f, or by the caller, who gives f up
	run := func() {
		if taken.CompareAndSwap(false, true) {
			f()
			close(done)
		}
	}
	if !l.engine.Do(run) {
		return errShutdown
	}
	var err error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		err = fmt.Errorf("the engine does not answer: %w", context.Cause(ctx))
	case <-l.done:
		err = errShutdown
	}
	if taken.CompareAndSwap(false, true) {
		return err
	}
	<-done
	return nil
}

// askTimeout bounds how long rdsctl and a reload wait for the engine.
const askTimeout = 5 * time.Second

// askFor runs f on the engine's thread as ask does, with a limit of time.
func (l *loop) askFor(timeout time.Duration, f func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.ask(ctx, f)
}
