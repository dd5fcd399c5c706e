package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/rds"
)

// marks is a stand-in for a socket's high-water marks, raised by the test.
type marks struct {
	mu   sync.Mutex
	cond sync.Cond
	at   map[netip.Addr]uint64
}

func newMarks() *marks {
	m := &marks{at: map[netip.Addr]uint64{}}
	m.cond.L = &m.mu
	return m
}

func (m *marks) raise(to netip.Addr, hwm uint64) {
	m.mu.Lock()
	m.at[to] = hwm
	m.mu.Unlock()
	m.cond.Broadcast()
}

func (m *marks) hwm(to netip.Addr) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[to]
}

func (m *marks) barrier(ctx context.Context, to netip.Addr, id uint64) (uint64, error) {
	defer context.AfterFunc(ctx, m.cond.Broadcast)()
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.at[to] < id {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		m.cond.Wait()
	}
	return m.at[to], nil
}

func TestLenderReturnsBuffersByHWM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
		m := newMarks()
		buf := []*rds.Buffer{new(rds.Buffer), new(rds.Buffer), new(rds.Buffer)}
		l := newLender(buf, m.hwm, m.barrier)
		defer l.stop()
		took := make(chan *rds.Buffer, 1)
		waiting := 0
		// wants says which buffer a taker has got by now, nil: it waits.
		wants := func(what string, want *rds.Buffer) {
			t.Helper()
			if waiting == 0 {
				waiting++
				go func() { took <- l.take(context.Background()) }()
			}
			synctest.Wait()
			select {
			case got := <-took:
				if waiting--; got != want {
					t.Errorf("%s: another buffer than expected", what)
				}
			default:
				if want != nil {
					t.Errorf("%s: the taker waits", what)
				}
			}
		}
		x, y, z := l.tryTake(), l.tryTake(), l.tryTake()
		l.lend(a, 2, x) // out of order, as concurrent workers do
		l.lend(a, 1, y)
		wants("all are out", nil)
		m.raise(a, 0)
		wants("mark 0", nil)
		l.lend(b, 1, z) // while the taker waits
		wants("lent to another destination", nil)
		m.raise(b, 1)
		wants("mark 1 of the other destination", z)
		m.raise(a, 1)
		wants("mark 1", y)
		wants("mark 1, again", nil)
		m.raise(a, 2)
		wants("mark 2", x)

		// Without a taker nobody waits at the barrier: the next one looks at the mark.
		l.lend(a, 3, x)
		if l.tryTake() != nil {
			t.Error("a buffer came back whose operation is not complete")
		}
		m.raise(a, 3)
		if l.tryTake() != x {
			t.Error("mark 3 did not return the buffer")
		}
	})
}

func TestLenderStopsWithBuffersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := netip.MustParseAddr("127.0.0.1")
		m := newMarks()
		l := newLender([]*rds.Buffer{new(rds.Buffer)}, m.hwm, m.barrier)
		l.lend(a, 1, l.take(context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan *rds.Buffer)
		go func() { got <- l.take(ctx) }()
		synctest.Wait()
		l.stop() // returns: no goroutine waits at the barrier any more
		cancel()
		if b := <-got; b != nil {
			t.Error("a buffer whose operation never completed came back")
		}
	})
}
