package rds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ipc"
)

// TestReopenWaiters: who waits, waits on, as deadlines and contexts say.
func TestReopenWaiters(t *testing.T) {
	l := openLives(t, Options{})
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	to := b.LocalAddrPort()
	l.daemons[0].set(func() { l.daemons[0].holdSends = true })
	if err := errors.Join(a.SetSndBuf(4), b.SetRcvBuf(3000)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.SendTo([]byte("held"), to); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 3)
	p := make([]byte, 10)
	go func() {
		_, err := a.SendTo([]byte("s"), to) // its send buffer is full
		results <- err
	}()
	go func() {
		n, _, err := b.RecvFrom(p)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d bytes", n)
		}
		results <- err
	}()
	for l.c.wait.waitingNow() < 2 {
		time.Sleep(100 * time.Microsecond)
	}
	l.away(l.daemons[0])
	go func() {
		_, err := l.c.Alloc(100)
		results <- err
	}()
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := a.Wait(short, WaitSet{SendSpace: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	c := bindLater(l.c)
	other := a.SetWriteDeadline(time.Now().Add(-1))
	if _, err := a.SendTo([]byte("s"), to); !errors.Is(err, os.ErrDeadlineExceeded) || other != nil {
		t.Errorf("send with a deadline: %v, %v", err, other)
	}
	if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) { // the sender
		t.Error(err)
	}
	if err := a.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := l.c.Err(); err != nil || l.c.ended() {
		t.Errorf("a client that opens again: %v", err)
	}
	go func() {
		_, err := a.SendTo([]byte("s"), to)
		results <- err
	}()
	l.next(nil)
	l.event()
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := <-c; err != nil {
		t.Errorf("Bind: %v", err)
	}
	if got := l.daemons[1].bound(to); got == nil || got.limit != 3000 {
		t.Errorf("receive buffer %+v", got)
	}
}

func (ws *waiters) waitingNow() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for at := ws.all.Head; at != nil; at = at.Next {
		n++
	}
	return n
}

func bindLater(c *Client) chan error {
	err := make(chan error, 1)
	go func() {
		_, e := c.Bind(netip.MustParseAddrPort("127.0.0.1:4002"))
		err <- e
	}()
	return err
}

// TestReopenEnds: a client that cannot open again ends, with the reason, and everybody
// who waits with it.
func TestReopenEnds(t *testing.T) {
	cases := map[string]struct {
		o    Options
		end  func(*lives)
		want []error
	}{
		"closed":      {Options{}, func(l *lives) { _ = l.c.Close() }, []error{ErrClosed}},
		"no daemon":   {Options{ReopenFor: time.Millisecond}, func(*lives) {}, []error{ErrDaemonGone, ErrNoDaemon}},
		"own fault":   {Options{}, nil, []error{ErrSession}},
		"old version": {Options{}, func(l *lives) { l.next(refuse[*ipc.Hello](syscall.EPROTONOSUPPORT)) }, []error{ErrDaemonGone, ErrVersion}},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			l := openLives(t, k.o)
			s := bindFake(t, l.c, "127.0.0.1:4000")
			received := make(chan error, 1)
			go func() {
				_, _, err := s.RecvFrom(nil)
				received <- err
			}()
			if k.end == nil {
				l.daemons[0].die(&ipc.SessionError{Text: "it broke a rule"})
			} else {
				l.daemons[0].die(nil)
				k.end(l)
			}
			err := <-received
			<-l.c.Done()
			for _, want := range k.want {
				if !errors.Is(err, want) || !errors.Is(l.c.Err(), want) {
					t.Errorf("%v and %v, want %v", err, l.c.Err(), want)
				}
			}
			if len(l.events) > 0 {
				t.Error("an event")
			}
		})
	}
}

func refuse[R any](errno syscall.Errno) func(any) error {
	return func(req any) error {
		if _, is := req.(R); is {
			return &ipc.Err{Errno: uint32(errno)}
		}
		return nil
	}
}

// TestReopenManyDeaths: daemons that die at any point of the opening leave nothing
// behind, and there is one event for all of them.
func TestReopenManyDeaths(t *testing.T) {
	l := openLives(t, Options{})
	a, b := bindFake(t, l.c, "127.0.0.1:4000"), bindFake(t, l.c, "127.0.0.1:4001")
	l.away(l.daemons[0])
	for k := range 3 { // Hello, and two binds
		calls := 0
		d := l.make()
		d.callHook = func(any) error {
			if calls++; calls > k {
				d.die(nil)
			}
			return nil
		}
		l.starts <- d
	}
	l.next(refuse[*ipc.Hello](syscall.EUSERS)) // too many at once: later
	l.next(nil)
	if r := l.event(); len(r.Sockets) != 2 || r.Sockets[0].Err != nil || r.Sockets[1].Err != nil {
		t.Errorf("%+v", r)
	}
	if _, err := a.SendTo([]byte("x"), b.LocalAddrPort()); err != nil {
		t.Error(err)
	}
	if _, _, err := b.RecvFrom(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if len(l.events) > 0 {
		t.Error("another event")
	}
}

func soon(t testing.TB) context.Context { return timeout(t, 2*time.Minute) }
