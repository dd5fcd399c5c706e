package main

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/rds"
)

// marks stands in for a socket's barrier. It has one high-water mark for each destination,
// which the test raises.
type marks map[netip.Addr]chan uint64

func (m marks) barrier(ctx context.Context, to netip.Addr, id uint64) (uint64, error) {
	for {
		select {
		case hwm := <-m[to]:
			if hwm >= id {
				return hwm, nil
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func TestLenderReturnsBuffersByHWM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
		m := marks{a: make(chan uint64), b: make(chan uint64)}
		buf := []*rds.Buffer{new(rds.Buffer), new(rds.Buffer), new(rds.Buffer)}
		l := newLender(buf, m.barrier)
		defer l.stop()
		take := func() *rds.Buffer { synctest.Wait(); return l.take(context.Background()) }
		free := func() int { synctest.Wait(); return len(l.free) }

		x, y, z := take(), take(), take()
		l.lend(a, 2, x) // out of order, as concurrent workers do
		l.lend(a, 1, y)
		l.lend(b, 1, z)
		if n := free(); n != 0 {
			t.Fatalf("%d buffers free while all are out", n)
		}
		m[a] <- 0
		if n := free(); n != 0 {
			t.Errorf("mark 0 freed %d buffers", n)
		}
		m[b] <- 1
		if got := take(); got != z {
			t.Error("mark 1 of the other destination did not return its buffer")
		}
		m[a] <- 1
		if got := take(); got != y {
			t.Error("mark 1 did not return the buffer of operation 1")
		}
		if n := free(); n != 0 {
			t.Errorf("mark 1 freed the buffer of operation 2")
		}
		m[a] <- 2
		if got := take(); got != x {
			t.Error("mark 2 did not return the buffer of operation 2")
		}

		// The lender waits again for a destination that had no lent buffers.
		l.lend(a, 3, x)
		m[a] <- 3
		if got := take(); got != x {
			t.Error("the second round did not return the buffer")
		}
	})
}

func TestLenderStopsWithBuffersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := netip.MustParseAddr("127.0.0.1")
		l := newLender([]*rds.Buffer{new(rds.Buffer)}, marks{a: make(chan uint64)}.barrier)
		l.lend(a, 1, l.take(context.Background()))
		l.stop() // returns: no goroutine waits at the barrier any more
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if b := l.take(ctx); b != nil {
			t.Error("a buffer whose operation never completed came back")
		}
	})
}
