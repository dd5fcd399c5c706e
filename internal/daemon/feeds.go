package daemon

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/trace"
)

// feeds is what a connection of rdsctl has going on between two requests: at most one trace
// and one capture. It belongs to the session's goroutine, and ends with the session.
type feeds struct {
	user    *quota.User
	trace   *tracing
	capture *capturing
}

func (f *feeds) end() {
	if f.trace != nil {
		f.trace.end()
	}
	if f.capture != nil {
		f.capture.end()
	}
}

// feedPlaces are the places of one kind of feed. Users that are not trusted leave some of
// them, and share the rest as quota.User.MayShare says.
type feedPlaces struct {
	mu     sync.Mutex
	all    int                    // guarded by mu
	others int                    // of users that are not trusted; guarded by mu
	of     map[config.Account]int // by quota.User.Account; guarded by mu
}

// take takes a place of limit for u. Its error is ENOBUFS.
func (p *feedPlaces) take(u *quota.User, what string, limit, kept int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := u.MayShare(what, p.of[u.Account], p.all, limit)
	if err == nil && !u.Trusted {
		err = u.MayShare(what, p.of[u.Account], p.others, limit-kept)
	}
	if err != nil {
		return fmt.Errorf("%w; one is free again when its rdsctl ends", err)
	}
	if p.of == nil {
		p.of = map[config.Account]int{}
	}
	p.all++
	if p.of[u.Account]++; !u.Trusted {
		p.others++
	}
	return nil
}

func (p *feedPlaces) leave(u *quota.User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if !u.Trusted {
		p.others--
	}
	if p.of[u.Account]--; p.of[u.Account] == 0 {
		delete(p.of, u.Account)
	}
}

// tracesKept is how many of trace.Max users that are not trusted leave.
const tracesKept = 2

// tracing is a trace that is on. It ends by itself when its time is over, even if its
// rdsctl reads nothing.
type tracing struct {
	*trace.Trace
	over  atomic.Bool // it has all that it will ever have
	place atomic.Uint32
	timer *time.Timer
	stop  func() // once
}

// What became of the place of a trace.
const (
	has uint32 = iota
	gaveBack
	passedOn // to the next trace of the connection
)

// end ends t before its time, on the session's goroutine.
func (t *tracing) end() {
	t.timer.Stop() // it would keep the ring
	t.stop()
}

// BeginTrace begins a trace, instead of the one that the connection may have.
func (b backend) BeginTrace(who ctl.Caller, spec ctl.TraceSpec) error {
	f := b.feeds
	if f.trace == nil || !f.trace.place.CompareAndSwap(has, passedOn) {
		if err := b.d.traces.take(f.user, "traces", trace.Max, tracesKept); err != nil {
			return err
		}
	}
	b.EndTrace()
	t := &tracing{Trace: trace.New(spec, who)}
	t.stop = sync.OnceFunc(func() {
		ended := func() {
			b.d.engine.EndTrace(t.Trace)
			t.over.Store(true)
			if t.place.CompareAndSwap(has, gaveBack) {
				b.d.traces.leave(f.user)
			}
		}
		if !b.d.engine.Do(ended) {
			t.over.Store(true)
		}
	})
	ok := false
	err := b.d.loop.askFor(askTimeout, func() { ok = b.d.engine.BeginTrace(t.Trace) })
	if err == nil && !ok { // a place was given, so one is about to be free
		err = fmt.Errorf("the daemon has its %d traces", trace.Max)
	}
	if err != nil {
		t.stop()
		return err
	}
	t.timer = time.AfterFunc(spec.Duration, t.stop)
	f.trace = t
	return nil
}

// ReadTrace returns what is new.
func (b backend) ReadTrace() ([]ctl.TraceEvent, ctl.TraceState, error) {
	t := b.feeds.trace
	if t == nil {
		return nil, ctl.TraceState{}, fmt.Errorf("%w: this connection has no trace", ctl.ErrNotFound)
	}
	over := t.over.Load() // before the ring is looked at
	out := t.Read(ctl.TraceAnswer)
	s := t.State()
	s.Over = over && len(out) < ctl.TraceAnswer
	return out, s, nil
}

// EndTrace ends the connection's trace.
func (b backend) EndTrace() {
	if t := b.feeds.trace; t != nil {
		t.end()
		b.feeds.trace = nil
	}
}
