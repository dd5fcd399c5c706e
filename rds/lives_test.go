package rds

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/attach"
)

// lives are the daemons that follow each other under one client.
type lives struct {
	t       testing.TB
	c       *Client
	o       Options
	starts  chan *fakeDaemon // daemons for Again to find
	events  chan *Reopened
	mu      sync.Mutex
	daemons []*fakeDaemon
}

func openLives(t testing.TB, o Options) *lives {
	t.Helper()
	l := &lives{t: t, starts: make(chan *fakeDaemon, 100), events: make(chan *Reopened, 100)}
	o.Reopen = func(r *Reopened) { l.events <- r }
	l.o = o
	d := l.make()
	way := attach.Way{Control: d, Wake: d.client, Again: func(ctx context.Context) (attach.Way, error) {
		select {
		case d := <-l.starts:
			return attach.Way{Control: d, Wake: d.client}, nil
		case <-ctx.Done():
			return attach.Way{}, ErrNoDaemon
		}
	}}
	c, err := Open(attach.Through(context.Background(), way), o)
	if err != nil {
		t.Fatal(err)
	}
	l.c = c
	t.Cleanup(func() {
		_ = c.Close()
		for _, d := range l.daemons {
			_ = d.Close()
			d.mu.Lock()
			for _, b := range d.broken {
				t.Errorf("the client broke the contract: %s", b)
			}
			d.mu.Unlock()
		}
	})
	return l
}

func (l *lives) make() *fakeDaemon {
	d := newFakeDaemon(l.o.Params)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.daemons = append(l.daemons, d)
	return d
}

// next starts a daemon, whose calls hook sees first.
func (l *lives) next(hook func(any) error) *fakeDaemon {
	d := l.make()
	d.callHook = hook
	l.starts <- d
	return d
}

func (l *lives) event() *Reopened {
	l.t.Helper()
	select {
	case r := <-l.events:
		return r
	case <-time.After(2 * time.Minute):
		l.t.Fatal("no event")
		return nil
	}
}

// away kills the daemon and waits until the client knows.
func (l *lives) away(d *fakeDaemon) {
	d.die(nil)
	for { // the client's goroutine sees it next
		if _, is := l.c.state().(*outage); is {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (d *fakeDaemon) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}
