package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
	"golang.org/x/sys/unix"
)

// waiter is a call that is to wait across upgrades.
type waiter struct {
	what string
	done chan error
}

func waits(what string, do func() error) *waiter {
	w := &waiter{what, make(chan error, 1)}
	go func() { w.done <- do() }()
	return w
}

// still checks that the call waits.
func (w *waiter) still(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.done:
		t.Fatalf("%s ended too soon: %v", w.what, err)
	default:
	}
}

// ends checks that the call ends well.
func (w *waiter) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.done:
		if err != nil {
			t.Errorf("%s: %v", w.what, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s waits for ever", w.what)
	}
}

// fill sends to a socket that nobody reads until it is congested.
func (a *audit) fill(t *testing.T, src *rds.Socket, to addrPort, size int) {
	t.Helper()
	eventually(t, "congestion", func() error {
		for {
			switch err := a.sendIn(rds.DontWait, src, to, make([]byte, size)); {
			case errors.Is(err, rds.ErrCongested):
				return nil
			case errors.Is(err, rds.ErrWouldBlock):
				return err
			case err != nil:
				t.Fatal(err)
			}
		}
	})
}

// TestUpgradeCongested fills a receiver, and replaces the sender's daemon twice, then the
// receiver's. The receiver stays congested, and its sender does not learn anything else. All
// that the daemons hold arrives, and relief is told to those who wait for it since before.
func TestUpgradeCongested(t *testing.T) {
	for _, where := range []string{"network", "host"} {
		t.Run(where, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2)
				if where == "host" {
					hosts[0] = hosts[1]
				}
				testUpgradeCongested(t, hosts[0], hosts[1])
			})
		})
	}
}

func testUpgradeCongested(t *testing.T, from, at *host) {
	a := newAudit()
	cf := from.open()
	ct := at.openWith(rds.Options{Params: rds.Params{MaxRx: 64}}) // more are in the daemon's memory
	src, blocked, monitor, dst := from.bind(cf, 0), from.bind(cf, 0), from.bind(cf, 0), at.bind(ct, 0)
	to := dst.LocalAddrPort()
	a.fill(t, src, to, 3000)
	krds.Of(monitor).SetCongMonitor(true)
	if _, err := monitor.Send(rds.DontWait, &rds.Message{Payload: make([]byte, 8), Addr: to}); !errors.Is(err, rds.ErrCongested) {
		t.Errorf("a send to a congested port: %v", err)
	}
	full := func(held uint64) uint64 {
		t.Helper()
		eventually(t, "a congested port", func() error {
			at.published()
			if n := at.gauge(stats.CongestedPorts); n != 1 {
				return fmt.Errorf("%d ports congested", n)
			}
			return nil
		})
		now := at.gauge(stats.HeldBytes)
		if now < max(held, 1) {
			t.Errorf("%d bytes held, before %d", now, held)
		}
		return now
	}
	held := full(0)
	relief := waits("a wait for relief", func() error {
		_, err := src.Wait(context.Background(), rds.WaitSet{Relief: []addrPort{to}})
		return err
	})
	send := waits("a send to a congested port", func() error { return a.send(blocked, to, make([]byte, 3000)) })
	for range 2 {
		from.upgrade()
		if _, err := src.Send(rds.DontWait, &rds.Message{Payload: make([]byte, 8), Addr: to}); !errors.Is(err, rds.ErrCongested) {
			t.Errorf("a send to a congested port after an upgrade: %v", err)
		}
		held = full(held)
	}
	relief.still(t)
	send.still(t)
	if n := krds.Of(monitor).CongUpdates(); n != 0 {
		t.Errorf("relief %#x was told, and there is none", n)
	}
	// The other host's processes learn of the congestion anew, as after any reset.
	if from != at {
		at.upgrades(2)
		full(held)
	}
	done := make(chan struct{})
	go func() { a.take(dst); close(done) }()
	relief.ends(t)
	send.ends(t)
	var told rds.WaitSet
	*krds.Congestion(&told) = true
	if _, err := monitor.Wait(t.Context(), told); err != nil || krds.Of(monitor).CongUpdates()&(1<<(to.Port()%64)) == 0 {
		t.Errorf("the monitor was not told: %v", err)
	}
	a.all(t, src, blocked)
	dst.Close()
	<-done
}

// TestUpgradeWaits has calls of all kinds wait while the daemons are replaced twice. None of
// them ends before it would have.
func TestUpgradeWaits(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		c, far := here.open(), there.open()
		s, late, polled, op := here.bind(c, 0), here.bind(c, 0), here.bind(c, 0), here.bind(c, 0)
		target := there.bind(far, 0)
		poll := newEpoll(t, polled)

		// Replies and atomics wait while the other host's daemon is stopped.
		mem := newTarget(t, far, target, 4096, rds.AllowAtomic|rds.AllowWrite).expose(t, here.at(0))
		granted(t, target, op)
		recv := waits("a receive with a deadline", func() error {
			s.SetReadDeadline(time.Now().Add(patience))
			b := make([]byte, 8)
			n, _, err := s.RecvFrom(b)
			if err == nil && string(b[:n]) != "late" {
				err = fmt.Errorf("received %q", b[:n])
			}
			return err
		})
		expired := waits("a receive whose deadline passes", func() error {
			late.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, _, err := late.RecvFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("ended with %w", err)
			}
			return nil
		})
		readable := waits("epoll", poll.wait)
		there.pause()
		m := rds.Message{Addr: target.LocalAddrPort(), Atomic: &rds.Atomic{Cookie: mem.reg.Cookie(), Add: 7, Notify: true,
			Local: rds.Segment{Buf: mustAlloc(t, c, 4096), Len: 8}}}
		if _, err := op.Send(context.Background(), &m); err != nil {
			t.Fatal(err)
		}
		barrier := waits("a barrier", func() error { _, err := op.Barrier(context.Background(), there.addr(), m.AtomicID); return err })
		status := waits("a wait for a status", func() error {
			c, err := op.WaitOp(context.Background(), there.addr(), m.AtomicID)
			return errors.Join(err, c.Err())
		})
		here.upgrades(2)
		for _, w := range []*waiter{recv, readable, barrier, status} {
			w.still(t)
		}
		there.Resume()
		barrier.ends(t)
		status.ends(t)
		there.upgrades(2)
		recv.still(t)
		readable.still(t)
		for _, x := range []*rds.Socket{s, polled} {
			if _, err := target.SendTo([]byte("late"), x.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
		}
		recv.ends(t)
		expired.ends(t)
		readable.ends(t)
		if n := binary.LittleEndian.Uint64(mem.buf.Bytes()); n != 7 {
			t.Errorf("the atomic has made %d", n)
		}
		onlyBreaks(t, 0, s, late, polled) // nothing was sent from these
	})
}

// TestUpgradeIdle has a client that does nothing while its daemon is replaced three times,
// and one that has messages which it has not read. Both go on, at their ports and with their
// incarnations.
func TestUpgradeIdle(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		idle, unread := here.bind(here.open(), 0), here.bind(here.open(), 0)
		other := there.bind(there.open(), 0)
		a := newAudit()
		const n = 40
		for range n {
			if err := a.send(other, unread.LocalAddrPort(), make([]byte, 2000)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := idle.SendTo([]byte("before"), other.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		before := rds.Received{Payload: make([]byte, 16)}
		if err := other.Recv(context.Background(), &before); err != nil {
			t.Fatal(err)
		}
		here.upgrades(3)
		// It answers to the very socket that it had heard from.
		if _, err := other.Send(context.Background(), &rds.Message{Payload: []byte("answer"), Addr: before.Addr, DstInc: before.SrcInc}); err != nil {
			t.Fatal(err)
		}
		got := rds.Received{Payload: make([]byte, 16)}
		if err := idle.Recv(context.Background(), &got); err != nil || string(got.Payload[:got.N]) != "answer" {
			t.Errorf("%q, %v", got.Payload[:got.N], err)
		}
		if _, err := idle.SendTo([]byte("after"), other.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		after := rds.Received{Payload: make([]byte, 16)}
		if err := other.Recv(context.Background(), &after); err != nil || after.SrcInc != before.SrcInc || after.Addr != before.Addr {
			t.Errorf("from %v incarnation %d, before %v and %d: %v", after.Addr, after.SrcInc, before.Addr, before.SrcInc, err)
		}
		if _, err := here.open().Bind(idle.LocalAddrPort()); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a port in use was bound again: %v", err)
		}
		done := make(chan struct{})
		go func() { a.take(unread); close(done) }()
		a.all(t, other)
		unread.Close()
		<-done
	})
}

// TestUpgradeComers has clients come and go, in order and killed, while daemons are replaced.
// No Open, Bind or Alloc fails, and nothing stays of those that have ended.
func TestUpgradeComers(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		here, there := hosts[0], hosts[1]
		echoes := there.bind(there.open(), 0)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := echo(echoes, 1<<30); !errors.Is(err, rds.ErrClosed) {
				t.Errorf("echo: %v", err)
			}
		})
		stop := make(chan struct{})
		var come sync.WaitGroup
		rounds := [2]int{}
		for i := range rounds {
			come.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := comeAndGo(here, echoes.LocalAddrPort()); err != nil {
						t.Error(err)
						return
					}
					rounds[i]++
				}
			})
		}
		for round := range 4 {
			w := startUpgradeWorker(t, here, echoes.LocalAddrPort())
			here.beginUpgrade()
			if round%2 == 0 {
				w.Kill()
			}
			here.follow()
			w.Kill()
		}
		close(stop)
		come.Wait()
		if rounds[0]+rounds[1] == 0 {
			t.Error("nobody came")
		}
		t.Logf("%v came and went", rounds)
		echoes.Close()
		wg.Wait()
	})
}

// comeAndGo is a short life of a client.
func comeAndGo(h *host, to addrPort) error {
	c, err := rds.Open(context.Background(), rds.Options{Socket: h.sock, Params: rds.Params{SubEntries: 64, EventEntries: 128, MaxMsgs: 64, MaxRx: 64, Slots: 16, Cells: 16, SendWindows: 1, RecvWindows: 1}})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Bind(h.at(0))
	if err != nil {
		return err
	}
	if _, err := c.Alloc(10000); err != nil {
		return err
	}
	if _, err := s.SendTo([]byte("hello"), to); err != nil {
		return err
	}
	b := make([]byte, 8)
	if n, _, err := s.RecvFrom(b); err != nil || string(b[:n]) != "hello" {
		return fmt.Errorf("%q came back: %w", b[:n], err)
	}
	return nil
}
