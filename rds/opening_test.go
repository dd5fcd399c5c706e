package rds

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestDestinationAsked: if the daemon may refuse a destination, the first message
// waits until it is open. So the first cookie to a host that takes none is refused
// like every other one, and nothing of it goes.
func TestDestinationAsked(t *testing.T) {
	d, a, b, _, _, r := rdmaPair(t, Options{})
	a.c.tx.asks = true
	d.do(func() { d.noRDMA, d.holdSends = true, true })
	m := Message{Addr: a.LocalAddrPort(), Cookie: r.Cookie()}
	if _, err := b.Send(context.Background(), &m); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("the first: %v", err)
	}
	if n, err := a.SendBatch(context.Background(), []Message{{Addr: m.Addr, Payload: []byte("x")}, {Addr: b.LocalAddrPort(), Cookie: r.Cookie()}}); n != 1 || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("several: %d, %v", n, err)
	}
	d.do(func() {
		if len(d.held) != 1 {
			t.Errorf("%d messages were submitted, want 1", len(d.held))
		}
	})
}

// TestDaemonBehind: a first message waits for a daemon that does not look, unless
// its sender does not wait, its deadline passes or its socket is closed.
func TestDaemonBehind(t *testing.T) {
	d, a, b := pair(t, Options{})
	a.c.tx.asks = true
	d.do(func() { d.holdSends = true })
	to := b.LocalAddrPort()
	resume := d.pause()
	if _, err := a.Send(DontWait, &Message{Addr: to}); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("without waiting: %v", err)
	}
	_ = a.SetWriteDeadline(time.Now())
	if _, err := a.SendTo(nil, to); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("beyond its deadline: %v", err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	sent := make(chan error)
	go func() {
		_, err := a.SendTo(nil, to)
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Errorf("while the daemon does not look: %v", err)
	case <-time.After(10 * time.Millisecond): // longer would show no more
	}
	resume()
	d.do(func() {}) // it looks, whether it had gone to sleep or not
	if err := <-sent; err != nil {
		t.Errorf("when it does: %v", err)
	}
	d.do(func() {
		if len(d.held) != 1 {
			t.Errorf("%d messages were submitted, want 1", len(d.held))
		}
	})
	resume = d.pause() // the daemon never gets to see the next one
	go func() {
		_, err := a.SendTo(nil, stuckAt(1))
		sent <- err
	}()
	go d.die(nil)
	resume()
	if err := <-sent; err != nil && !errors.Is(err, ErrDaemonGone) {
		t.Errorf("when it ends: %v", err)
	}
}
