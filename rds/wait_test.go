package rds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		recv := func() error {
			_, _, err := b.RecvFrom(make([]byte, 8))
			return err
		}
		start := time.Now()
		b.SetReadDeadline(start.Add(time.Second))
		if err := recv(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		// It stays expired, even with a message there, until it is moved.
		mustSend(t, a, "x", b)
		synctest.Wait()
		if err := recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		b.SetReadDeadline(time.Now().Add(time.Hour))
		mustRecv(t, b, "x")
		// Moved while somebody waits: nearer, further, away, past.
		got := make(chan error)
		start = time.Now()
		go func() { got <- recv() }()
		synctest.Wait()
		b.SetReadDeadline(time.Now().Add(time.Minute))
		time.Sleep(time.Second)
		b.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Minute+time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		b.SetReadDeadline(time.Time{})
		go func() { got <- recv() }()
		time.Sleep(time.Hour)
		b.SetDeadline(time.Unix(1, 0))
		if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		var op *opError
		if err := recv(); !errors.As(err, &op) || !op.Timeout() {
			t.Fatal(err)
		}
	})
}

// TestManyWaiters: a thousand goroutines wait, one leads, each gets its
// message; then all of them wait at one socket.
func TestManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := openFake(t, noSpin)
		const n = 1000
		from := bindFake(t, c, "127.0.0.1:4000")
		from.SetSndBuf(1 << 20)
		socks := make([]*Socket, n)
		var wg sync.WaitGroup
		for i := range socks {
			socks[i] = bindFake(t, c, fmt.Sprintf("127.0.0.1:%d", 10000+i))
			wg.Go(func() {
				buf := make([]byte, 16)
				k, _, err := socks[i].RecvFrom(buf)
				if want := fmt.Sprint(i); err != nil || string(buf[:k]) != want {
					t.Errorf("socket %d got %q, %v", i, buf[:k], err)
				}
			})
		}
		synctest.Wait()
		rings := d.ringCount()
		time.Sleep(time.Hour)
		if d.ringCount() != rings {
			t.Error("waiting for nothing rang bells")
		}
		for i := range socks {
			mustSend(t, from, fmt.Sprint((i*7+3)%n), socks[(i*7+3)%n])
		}
		wg.Wait()

		one := socks[0]
		seen := make(chan string, n)
		for range n {
			wg.Go(func() {
				buf := make([]byte, 16)
				k, _, err := one.RecvFrom(buf)
				if err != nil {
					t.Error(err)
				}
				seen <- string(buf[:k])
			})
		}
		synctest.Wait()
		for i := range n {
			mustSend(t, from, fmt.Sprint(i), one)
		}
		wg.Wait()
		close(seen)
		all := map[string]bool{}
		for s := range seen {
			all[s] = true
		}
		if len(all) != n {
			t.Errorf("%d different messages received, want %d", len(all), n)
		}
	})
}

func (d *fakeDaemon) ringCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rings
}

// TestLeaderLeaves: whatever makes the leader leave, another waiter leads, and
// nobody's message is lost.
func TestLeaderLeaves(t *testing.T) {
	leave := map[string]func(*Socket){
		"message":  func(s *Socket) { mustSend(t, s, "x", s) },
		"deadline": func(s *Socket) { s.SetReadDeadline(time.Unix(1, 0)) },
		"close":    func(s *Socket) { s.Close() },
		"taken by another": func(s *Socket) {
			// A message that a non-blocking receive takes from the ring wakes
			// a waiter for nothing; it must go back to waiting.
			mustSend(t, s, "x", s)
			s.Close()
		},
	}
	for name, f := range leave {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := openFake(t, noSpin)
				from := bindFake(t, c, "127.0.0.1:4000")
				const n = 5
				var socks [n]*Socket
				var wg sync.WaitGroup
				for i := range socks {
					socks[i] = bindFake(t, c, fmt.Sprintf("127.0.0.1:%d", 5000+i))
					wg.Go(func() {
						_, _, err := socks[i].RecvFrom(make([]byte, 8))
						if i == n-1 && err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				if c.wait.leader == nil || c.wait.leader.sock != socks[0] {
					t.Error("the first waiter does not lead")
				}
				for i := range n - 1 {
					f(socks[i])
					synctest.Wait()
					c.wait.mu.Lock()
					if c.wait.leader == nil || c.wait.leader.sock != socks[i+1] {
						t.Errorf("after %d left, the next does not lead", i)
					}
					c.wait.mu.Unlock()
				}
				mustSend(t, from, "last", socks[n-1])
				wg.Wait()
				c.wait.mu.Lock()
				defer c.wait.mu.Unlock()
				if c.wait.leader != nil || c.wait.all.Head != nil {
					t.Error("somebody leads or waits when all have left")
				}
			})
		})
	}
}

// TestFollowerServed: the leader takes in what is for others while it stays
// asleep for its own.
func TestFollowerServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := openFake(t, noSpin)
		idle, busy, from := bindFake(t, c, "127.0.0.1:1000"), bindFake(t, c, "127.0.0.1:1001"), bindFake(t, c, "127.0.0.1:1002")
		done := make(chan error)
		go func() {
			_, _, err := idle.RecvFrom(nil)
			done <- err
		}()
		synctest.Wait()
		for i := range 100 {
			go func() {
				time.Sleep(time.Second)
				mustSend(t, from, fmt.Sprint(i), busy)
			}()
			mustRecv(t, busy, fmt.Sprint(i))
		}
		idle.Close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		wait := func(s *Socket, w WaitSet) (WaitSet, error) { return s.Wait(timeout(t, time.Second), w) }
		if _, err := wait(b, WaitSet{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("empty set: %v", err)
		}
		if got, err := wait(b, WaitSet{SendSpace: true, Message: true}); err != nil || !got.SendSpace || got.Message {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := wait(b, WaitSet{Message: true, Completion: true, Notice: true})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing happens: %v", err)
		}
		var ne interface{ Timeout() bool }
		if !errors.As(err, &ne) || !ne.Timeout() {
			t.Error("a context's deadline is a timeout")
		}
		// Watchers do not take a receiver's wake-up.
		got := make(chan string, 4)
		for range 2 {
			go func() {
				w, err := b.Wait(bg(), WaitSet{Message: true})
				got <- fmt.Sprint(w.Message, err)
			}()
		}
		synctest.Wait()
		go func() {
			_, _, err := b.RecvFrom(make([]byte, 10))
			got <- fmt.Sprint("received ", err)
		}()
		synctest.Wait()
		mustSend(t, a, "x", b)
		synctest.Wait()
		count := map[string]int{}
		for len(got) > 0 {
			count[<-got]++
		}
		// The receiver may have been faster than a watcher, which waits on then.
		if count["received <nil>"] != 1 {
			t.Errorf("%v", count)
		}
		mustSend(t, a, "y", b)
		synctest.Wait()
		for len(got) > 0 {
			count[<-got]++
		}
		if count["true <nil>"] != 2 {
			t.Errorf("%v", count)
		}
		mustRecv(t, b, "y")

		d.keepIDs = true
		a.SetSndBuf(1)
		mustSend(t, a, "z", b)
		ready := make(chan WaitSet)
		go func() {
			w, err := a.Wait(bg(), WaitSet{SendSpace: true, Notice: true})
			if err != nil {
				t.Error(err)
			}
			ready <- w
		}()
		synctest.Wait()
		d.ackAll()
		if w := <-ready; !w.SendSpace || w.Notice {
			t.Errorf("%+v", w)
		}
		d.keepIDs = false
		if _, err := a.SendTo(nil, netip.MustParseAddrPort("127.0.0.1:77")); err != nil {
			t.Fatal(err)
		}
		if w, err := wait(a, WaitSet{Notice: true}); err != nil || !w.Notice {
			t.Errorf("%+v, %v", w, err)
		}
	})
}

// TestPeekPassesOn: one that only looks does not keep the wake-up to itself.
func TestPeekPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		done := make(chan error, 4)
		for _, peek := range []bool{true, true, true, false} {
			go func() { done <- recvOr(bg(), b, &Received{}, peek) }()
			synctest.Wait()
		}
		mustSend(t, a, "x", b)
		synctest.Wait()
		if len(done) != 4 {
			t.Fatalf("%d of 4 were woken", len(done))
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
