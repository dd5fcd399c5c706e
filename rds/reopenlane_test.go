package rds

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestReopenLane: a region is exposed in its socket's lane, also if the socket has no
// destination open that tells the next daemon.
func TestReopenLane(t *testing.T) {
	l := openLives(t, Options{})
	a := bindFake(t, l.c, "127.0.0.1:4000")
	to := bindFake(t, l.c, "127.0.0.1:4001").LocalAddrPort()
	_, region := target(t, l.c, a)
	if err := errors.Join(a.SetLane(2), region.Expose(soon(t), to), a.CloseDest(to)); err != nil {
		t.Fatal(err)
	}
	l.away(l.daemons[0])
	told := false
	l.next(func(req any) error {
		if _, is := req.(*ipc.Expose); is {
			l.c.tx.mu.Lock()
			defer l.c.tx.mu.Unlock()
			told = a.dests[to] != nil
		}
		return nil
	})
	l.event()
	_, region = target(t, l.c, a)
	if err := region.Expose(soon(t), to); err != nil || !told {
		t.Errorf("%v; the daemon knows the lane: %v", err, told)
	}
}

// TestReopenBounce: a change-over does not wait for a bounce buffer that is being freed.
func TestReopenBounce(t *testing.T) {
	l := openLives(t, Options{})
	b, err := l.c.Alloc(bounceSize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.c.Alloc(1); err != nil { // is lost: the fake daemon's memory has no descriptor
		t.Fatal(err)
	}
	b.mu.Lock()
	freed := make(chan struct{})
	go func() {
		defer close(freed)
		l.c.bounces.put(b, true)
	}()
	l.away(l.daemons[0])
	l.next(nil)
	l.event()
	b.mu.Unlock()
	<-freed
}
