package rds

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// reopenLoad is traffic from a to b while their daemons die.
type reopenLoad struct {
	t     *testing.T
	l     *lives
	a, b  *Socket
	sent  atomic.Uint64
	got   atomic.Uint64 // datagrams received
	last  uint64        // the receiver's
	gaps  uint64        // numbers that never came
	stop  atomic.Bool
	tasks sync.WaitGroup
}

func (x *reopenLoad) send() {
	p := make([]byte, 3000)
	for !x.stop.Load() {
		n := x.sent.Load() + 1
		binary.LittleEndian.PutUint64(p, n)
		size := 8
		if n%7 == 0 {
			size = len(p) // a message by itself
		}
		switch _, err := x.a.SendTo(p[:size], x.b.LocalAddrPort()); {
		case err == nil:
			x.sent.Store(n)
		case !errors.Is(err, ErrClosed):
			x.t.Errorf("send: %v", err)
			return
		}
	}
}

func (x *reopenLoad) receive() {
	p := make([]byte, 3000)
	for {
		_, _, err := x.b.RecvFrom(p)
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				x.t.Errorf("receive: %v", err)
			}
			return
		}
		n := binary.LittleEndian.Uint64(p)
		if n <= x.last {
			x.t.Errorf("datagram %d behind %d", n, x.last)
		}
		x.gaps += n - x.last - 1
		x.last = n
		x.got.Add(1)
	}
}

// operate runs operations that ask for their status, and wants one of each.
func (x *reopenLoad) operate(c *Socket) {
	to := x.b.LocalAddrPort()
	for token := uint64(1); !x.stop.Load(); token++ {
		// The cookie is unknown, so the status is an error or Unknown.
		buf, err := x.l.c.Alloc(8)
		if err != nil {
			x.t.Errorf("Alloc: %v", err)
			return
		}
		op := RDMA{Write: true, Cookie: 1, Local: []Segment{{Buf: buf, Len: 8}}, Token: token, Notify: token%3 > 0, Report: token%3 == 0}
		id, err := c.Send(context.Background(), &Message{Addr: to, Op: &op})
		if errors.Is(err, ErrInvalid) && buf.Bytes() == nil {
			continue // the next daemon has not taken the buffer
		}
		if err != nil {
			x.t.Errorf("operation: %v", err)
			return
		}
		if _, err := c.Barrier(soon(x.t), to.Addr(), id); err != nil {
			x.t.Errorf("Barrier: %v", err)
		}
		if _, err := c.Wait(soon(x.t), WaitSet{Completion: true}); err != nil {
			x.t.Errorf("Wait: %v", err)
			return
		}
		got := make([]Completion, 2)
		if n := c.Completions(got); n != 1 || got[0].Token != token || got[0].ID != id || got[0].Err() == nil {
			x.t.Errorf("operation %d: %+v", id, got[:n])
		}
		if err := buf.Free(); err != nil && !errors.Is(err, ErrClosed) {
			x.t.Errorf("Free: %v", err)
		}
	}
}

// TestReopenUnderLoad: daemons die while sockets are used by several goroutines. What
// arrives, arrives once and in order, no more is missing than the events say, and each
// operation has one status.
func TestReopenUnderLoad(t *testing.T) {
	for seed := range uint64(4) {
		l := openLives(t, Options{})
		x := &reopenLoad{t: t, l: l, a: bindFake(t, l.c, "127.0.0.1:4000"), b: bindFake(t, l.c, "127.0.0.1:4001")}
		ops := bindFake(t, l.c, "127.0.0.1:4002")
		x.tasks.Go(x.send)
		x.tasks.Go(func() { x.operate(ops) })
		var receiver sync.WaitGroup
		receiver.Go(x.receive)
		rng := rand.New(rand.NewPCG(seed, 1))
		lost := uint64(0)
		for range 12 {
			for until := x.got.Load() + rng.Uint64N(300); x.got.Load() < until && !t.Failed(); {
				time.Sleep(100 * time.Microsecond)
			}
			d := l.daemons[len(l.daemons)-1]
			if rng.IntN(2) == 0 {
				l.next(nil) // it is there before the other one dies
				d.die(nil)
			} else {
				l.away(d)
				l.next(nil)
			}
			for _, s := range l.event().Sockets {
				for _, n := range s.Unacked {
					if s.Socket == x.a {
						lost += uint64(n)
					}
				}
				if s.Err != nil {
					t.Error(s.Err)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		x.stop.Store(true)
		x.tasks.Wait()
		for !x.a.idsFree() {
			time.Sleep(100 * time.Microsecond)
		}
		for x.unread() {
			time.Sleep(100 * time.Microsecond)
		}
		if err := l.c.Close(); err != nil {
			t.Error(err)
		}
		receiver.Wait()
		if x.gaps += x.sent.Load() - x.last; x.gaps > lost {
			t.Errorf("seed %d: %d datagrams never came, and the events tell of %d", seed, x.gaps, lost)
		}
		if x.got.Load() == 0 {
			t.Errorf("seed %d: nothing came", seed)
		}
	}
}

// unread reports whether something waits for the receiver.
func (x *reopenLoad) unread() bool {
	r := &x.l.c.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents()
	return x.b.unread()
}
