package rds

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
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

// TestOpeningEnds: a sender whose context ends, or whose socket is closed, waits no longer for its destination.
func TestOpeningEnds(t *testing.T) {
	for want, end := range map[error]func(a *Socket, cancel func()){
		context.Canceled: func(_ *Socket, cancel func()) { cancel() },
		ErrClosed:        func(a *Socket, _ func()) { _ = a.shut() }, // the daemon has not answered yet
	} {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := pair(t, noSpin)
			a.c.tx.asks = true
			d.do(func() { d.noOpen = true })
			ctx, cancel := context.WithCancel(bg())
			defer cancel()
			sent := make(chan error)
			go func() { sent <- second(a.Send(ctx, &Message{Addr: b.LocalAddrPort()})) }()
			synctest.Wait()
			start := time.Now()
			end(a, cancel)
			if err := <-sent; !errors.Is(err, want) || time.Since(start) > ringSleep {
				t.Errorf("%v after %v, want %v", err, time.Since(start), want)
			}
		})
	}
}

// TestBatchOpensTogether: a batch opens all of its destinations before it waits for the first. What
// cannot be opened is met in its turn.
func TestBatchOpensTogether(t *testing.T) {
	d, a, b := pair(t, Options{})
	a.c.tx.asks = true
	defer d.pause()()
	var ms []Message
	for i := range 5 {
		ms = append(ms, Message{Payload: []byte("x"), Addr: netip.AddrPortFrom(d.local, b.LocalAddrPort().Port()+uint16(i))})
	}
	ms = append(ms, Message{Payload: []byte("nowhere")}, ms[0])
	if n := a.sendBatch(ms); n != 0 {
		t.Errorf("%d messages of the batch went before their destinations were open", n)
	}
	d.step()
	if n := a.sendBatch(ms); n != 5 {
		t.Errorf("%d messages of the batch went when their destinations were open, want 5", n)
	}
	if n, err := a.SendBatch(context.Background(), ms[5:]); n != 0 || !errors.Is(err, ErrInvalid) {
		t.Errorf("a message without an address: %d, %v", n, err)
	}
}
