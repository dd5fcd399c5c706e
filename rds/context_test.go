package rds

import (
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecvContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		ctx, cancel := context.WithTimeout(bg(), time.Second)
		defer cancel()
		m := Received{Payload: make([]byte, 8)}
		start := time.Now()
		if err := b.Recv(ctx, &m); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		mustSend(t, a, "here", b)
		synctest.Wait()
		if err := b.Recv(ctx, &m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended: %v", err)
		}
		for _, peek := range []bool{true, false} {
			if err := recvOr(bg(), b, &m, peek); err != nil || string(m.Payload[:m.N]) != "here" || m.Addr != a.LocalAddrPort() {
				t.Errorf("%q of %v, %v", m.Payload[:m.N], m.Addr, err)
			}
		}
		_ = b.SetReadDeadline(time.Now().Add(time.Second))
		if err := b.Recv(bg(), &m); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read deadline: %v", err)
		}
		_ = b.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { _ = b.Close() })
		if err := b.Recv(bg(), &m); !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestRecvContextPassesOn: of several receivers those whose contexts end leave the
// messages to the others.
func TestRecvContextPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		const receivers = 8
		var wg sync.WaitGroup
		var mu sync.Mutex
		got, ended := 0, 0
		for i := range receivers {
			ctx, cancel := context.WithTimeout(bg(), time.Duration(i%2+1)*time.Second)
			defer cancel()
			wg.Go(func() {
				err := b.Recv(ctx, &Received{Payload: make([]byte, 8)})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					got++
				case errors.Is(err, context.DeadlineExceeded):
					ended++
				default:
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second) // of the bubble: half of them end at the same time
		for range receivers / 4 {
			mustSend(t, a, "x", b)
		}
		wg.Wait()
		left := 0
		for b.Recv(DontWait, &Received{Payload: make([]byte, 8)}) == nil {
			left++
		}
		if got+left != receivers/4 || got+ended != receivers || left != 0 {
			t.Errorf("%d received, %d left, %d ended", got, left, ended)
		}
	})
}

func TestSendContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		if err := b.SetRcvBuf(100); err != nil {
			t.Fatal(err)
		}
		send := func(ctx context.Context) error {
			m := Message{Payload: make([]byte, 200), Addr: b.LocalAddrPort()}
			_, err := a.Send(ctx, &m)
			return err
		}
		if err := send(bg()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg(), time.Second)
		defer cancel()
		var op *opError
		if err := send(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &op) || op.Addr != b.LocalAddrPort() {
			t.Errorf("to a congested destination: %v", err)
		}
		done := make(chan error)
		go func() { done <- send(bg()) }()
		synctest.Wait()
		mustRecv(t, b, string(make([]byte, 200)))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := send(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended: %v", err)
		}
		_ = a.Close()
		if err := send(bg()); !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		sizes := []int{5, 0, 100, firstBuffer, firstBuffer + 1, 3, 100 << 10, 1}
		for i, n := range sizes {
			p := make([]byte, n)
			for j := range p {
				p[j] = byte(i)
			}
			if _, err := a.SendTo(p, b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(bg())
		defer cancel()
		i := 0
		for m, err := range b.Messages(ctx) {
			if i == len(sizes) {
				if m != nil || !errors.Is(err, context.Canceled) {
					t.Errorf("the end: %v, %v", m, err)
				}
				i++
				continue
			}
			if err != nil || len(m.Payload) != sizes[i] || m.N != sizes[i] || m.Len != m.N || m.Addr != a.LocalAddrPort() {
				t.Fatalf("message %d: %d bytes of %v, %d, %d, %v", i, len(m.Payload), m.Addr, m.N, m.Len, err)
			}
			for _, c := range m.Payload {
				if c != byte(i) {
					t.Fatalf("message %d has the payload of %d", i, c)
				}
			}
			if i++; i == len(sizes) {
				time.AfterFunc(time.Second, cancel)
			}
		}
		if i != len(sizes)+1 {
			t.Errorf("%d iterations", i)
		}
		mustSend(t, a, "left", b)
		mustSend(t, a, "over", b)
		for range b.Messages(bg()) {
			break
		}
		mustRecv(t, b, "over")
		time.AfterFunc(time.Second, func() { _ = b.Close() })
		for _, err := range b.Messages(bg()) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("Close: %v", err)
			}
		}
	})
}

// TestMessagesAllocs: a loop over messages that fit its buffer allocates nothing for
// each.
func TestMessagesAllocs(t *testing.T) {
	f := newFlow(t, 64, Params{SubEntries: 8 * batch})
	f.send() // makes what it needs
	f.d.do(func() {})
	f.recv()
	defer f.d.pause()()
	least := math.Inf(1)
	for range 5 {
		f.d.step()
		f.send() // AllocsPerRun runs twice, once to warm up
		f.send()
		f.d.step()
		ctx, cancel := context.WithCancel(bg())
		least = min(least, testing.AllocsPerRun(1, func() {
			n := 0
			for range f.to.Messages(ctx) {
				if n++; n == batch {
					return
				}
			}
		}))
		cancel()
	}
	if least > 12 {
		t.Errorf("%v allocations for %d messages", least, batch)
	}
}
