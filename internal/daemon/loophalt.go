package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// pause is a planned pause of the engine. From stands until over the loop touches neither
// engine nor statistics: they belong to whoever called halt.
type pause struct {
	began  func()        // called by the loop, once: the engine takes nothing in any more. nil: it was called
	stands chan struct{} // closed by the loop: the engine stands still
	over   chan struct{} // closed by whoever called halt
	end    bool          // set before over: the loop ends without another turn
}

// halt has the engine stand still and waits until it does. The engine's thread calls began when
// the engine takes nothing in any more. One pause at a time; goOn or leave ends it. After an error
// there is none, and the engine goes on.
func (l *loop) halt(ctx context.Context, began func()) (*pause, error) {
	p := &pause{began: began, stands: make(chan struct{}), over: make(chan struct{})}
	if err := l.ask(ctx, func() {
		l.pause = p
		l.engine.Halt()
		l.begins()
	}); err != nil {
		return nil, err
	}
	select {
	case <-p.stands:
		return p, nil
	case <-l.done:
		return nil, errShutdown
	case <-ctx.Done():
		l.goOn(p)
		return nil, fmt.Errorf("the engine does not come to a stand: %w", ctx.Err())
	}
}

// goOn ends a pause: the engine works on.
func (l *loop) goOn(p *pause) {
	close(p.over)
	shm.Ring(l.bell) // if the engine did not stand yet
}

// leave ends a pause and the loop. The engine stands still for good.
func (l *loop) leave(p *pause) {
	p.end = true
	close(p.over)
}

// show publishes what the engine has adopted, so that no reader finds statistics in which the
// daemon has no clients. The engine's thread does not run yet.
func (l *loop) show() {
	l.reportWay()
	l.publishNow()
}

// publishNow publishes the statistics of an engine that stands still. Only the engine's thread calls it,
// or who has the engine before that thread runs.
func (l *loop) publishNow() {
	wall := engine.Wall(time.Now().UnixNano())
	l.engine.PublishLists(wall)
	l.engine.PublishStats(wall)
}

// begins notes that the engine takes nothing in any more, if that is so. Only the engine's thread
// calls it.
func (l *loop) begins() {
	if p := l.pause; p.began != nil && l.engine.Halts() {
		p.began()
		p.began = nil
	}
}

// pauses is what the loop does while there is a pause. It reports whether that is over. Only the
// engine's thread calls it.
func (l *loop) pauses() bool {
	p := l.pause
	l.begins()
	if l.engine.Halted() {
		l.publishNow()
		l.stats.SetState(stats.Sleeping)
		close(p.stands)
		<-p.over
	}
	select {
	case <-p.over:
	default:
		return false
	}
	l.pause = nil
	if p.end {
		l.stop = true
		return true
	}
	l.stats.Woke(time.Now().UnixNano())
	l.engine.Resume()
	return true
}
