package rds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// sendRun sends payloads from a to b as one run, which the daemon delivers.
func sendRun(t testing.TB, d *fakeDaemon, a, b *Socket, payloads ...string) {
	t.Helper()
	defer d.pause()()
	d.step()
	tx := &a.c.tx
	tx.mu.Lock()
	x, err := tx.dest(a, b.LocalAddrPort())
	if err != nil {
		t.Fatal(err)
	}
	x.run = outRun{size: mostRun}
	tx.mu.Unlock()
	if n, err := a.SendBatch(context.Background(), batchOf(b.LocalAddrPort(), payloads...)); n != len(payloads) || err != nil {
		t.Fatal(n, err)
	}
	d.record = true
	wantTaken(t, d, len(payloads))
	d.record = false
}

// TestRunReceived: each call receives the datagrams of a run as if they had come alone.
func TestRunReceived(t *testing.T) {
	d, a, b := pair(t, Options{})
	mustSend(t, a, "before", b)
	sendRun(t, d, a, b, "one", "", "0123456789", "four", "five")
	mustSend(t, a, "after", b)
	d.do(func() {})
	mustRecv(t, b, "before")

	m := Received{Payload: make([]byte, 4)}
	for range 2 {
		if err := look(bg(), b, &m); err != nil || string(m.Payload[:m.N]) != "one" || m.N < m.Len || m.Addr != a.LocalAddrPort() {
			t.Errorf("peek: %+v, %v", m, err)
		}
	}
	mustRecv(t, b, "one")
	if n, from, err := tryRecv(b, m.Payload); n != 0 || from != a.LocalAddrPort() || err != nil {
		t.Errorf("an empty datagram: %d from %v, %v", n, from, err)
	}
	for _, peek := range []bool{true, false} {
		if assembly, err := (kernelSocket{b}).Recv(&m, peek); err != nil || m.N != 4 || m.Len != 10 || m.SrcInc == 0 ||
			m.Time.IsZero() || assembly != 1234 {
			t.Errorf("truncated, peek %v: %+v, %v, %v", peek, m, assembly, err)
		}
	}
	ms := []Received{{Payload: make([]byte, 8)}, {Payload: make([]byte, 2)}, {Payload: make([]byte, 8)}, {Payload: make([]byte, 8)}}
	if n, err := b.RecvBatch(DontWait, ms[:1]); n != 1 || err != nil || string(ms[0].Payload[:ms[0].N]) != "four" {
		t.Errorf("a batch of one: %+v, %d, %v", ms[0], n, err)
	}
	if n, err := b.RecvBatch(DontWait, ms[1:]); n != 2 || err != nil || string(ms[1].Payload[:ms[1].N]) != "fi" || ms[1].Len != 4 ||
		string(ms[2].Payload[:ms[2].N]) != "after" {
		t.Errorf("a batch: %d, %v, %+v", n, err, ms[1:])
	}
	if err := b.Recv(DontWait, &m); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("with nothing left: %v", err)
	}
	wantReturned(t, d)
}

// wantReturned checks that the daemon has all receive ids and all receive memory.
func wantReturned(t testing.TB, d *fakeDaemon) {
	t.Helper()
	d.do(func() {
		if n := len(d.rx) - len(d.rxFree); n != 0 || d.recv.InUse() != 0 {
			t.Errorf("%d receive ids and %d bytes of receive memory are out", n, d.recv.InUse())
		}
		for _, s := range d.socks {
			if s.used != 0 {
				t.Errorf("%d bytes count as unread", s.used)
			}
		}
	})
}

// TestRunReadiness: Wait and the descriptor see what is left of a run.
func TestRunReadiness(t *testing.T) {
	for _, queued := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := pair(t, noSpin)
			fd := mustPollFD(t, b)
			synctest.Wait()
			if queued {
				sendRun(t, d, a, b, "1", "2", "3")
				synctest.Wait() // the keeper queues the run
				if !readable(t, fd) {
					t.Error("not readable with a run")
				}
				mustRecv(t, b, "1")
			} else { // the receiver takes it from the ring
				b.c.rx.mu.Lock()
				sendRun(t, d, a, b, "1", "2", "3")
				n, ok, err := b.takeNext(make([]byte, 1), new(shm.Event), nil)
				b.passOn()
				b.c.rx.mu.Unlock()
				if n != 1 || !ok || err != nil {
					t.Fatal(n, ok, err)
				}
			}
			for _, p := range []string{"2", "3"} {
				synctest.Wait()
				if got, err := b.Wait(timeout(t, time.Second), WaitSet{Message: true}); !got.Message || err != nil || !readable(t, fd) {
					t.Errorf("before %s: %+v, %v, readable %v", p, got, err, readable(t, fd))
				}
				if p == "3" {
					if err := look(bg(), b, &Received{}); err != nil || !readable(t, fd) {
						t.Errorf("peek: %v, readable %v", err, readable(t, fd))
					}
				}
				mustRecv(t, b, p)
			}
			synctest.Wait()
			if readable(t, fd) {
				t.Error("readable with nothing left")
			}
			if got, err := b.Wait(DontWait, takeables); !errors.Is(err, ErrWouldBlock) {
				t.Errorf("with nothing left: %+v, %v", got, err)
			}
			b.Close()
		})
	}
}

// TestRunForManyReceivers: a run wakes as many receivers as it has datagrams, by event or
// by what a receiver leaves when it reaches its deadline.
func TestRunForManyReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		got := make(chan string, 10)
		for range 5 {
			go func() {
				p := make([]byte, 8)
				n, _, err := b.RecvFrom(p)
				got <- fmt.Sprintf("%s%v", p[:n], err)
			}()
		}
		synctest.Wait()
		sendRun(t, d, a, b, "1", "2", "3")
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("%d receivers have a datagram, of 3", len(got))
		}
		sendRun(t, d, a, b, "4", "5", "6")
		synctest.Wait()
		var all []string
		for len(got) > 0 {
			all = append(all, <-got)
		}
		slices.Sort(all)
		if want := []string{"1<nil>", "2<nil>", "3<nil>", "4<nil>", "5<nil>"}; !slices.Equal(all, want) {
			t.Errorf("received %v, want %v", all, want)
		}
		b.SetReadDeadline(time.Now())
		if _, _, err := b.RecvFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("past the deadline, with a run half read: %v", err)
		}
		b.SetReadDeadline(time.Time{})
		mustRecv(t, b, "6")
		wantReturned(t, d)
	})
}

// TestRunHalfReadAtClose: a socket that closes gives back the run that it has read in
// part, once. The daemon sees it: it has each receive id back, and none twice.
func TestRunHalfReadAtClose(t *testing.T) {
	for name, end := range map[string]func(d *fakeDaemon, b *Socket) error{
		"close": func(_ *fakeDaemon, b *Socket) error { return b.Close() },
		"close that waits": func(d *fakeDaemon, b *Socket) error {
			d.do(func() { d.holdSends = true })
			mustSend(t, b, "last words", b)
			ended := make(chan error)
			go func() { ended <- b.CloseWait(bg()) }()
			synctest.Wait()
			wantReturned(t, d) // others may need the memory
			d.do(func() { d.holdSends = false; d.releaseAll() })
			return <-ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := pair(t, noSpin)
				big := string(make([]byte, 1<<10))
				sendRun(t, d, a, b, "1", big, big, big, big)
				sendRun(t, d, a, b, "2", "3") // queued, not begun
				synctest.Wait()
				mustRecv(t, b, "1")
				mustRecv(t, b, big)
				if err := end(d, b); err != nil {
					t.Error(err)
				}
				if _, _, err := b.RecvFrom(nil); !errors.Is(err, ErrClosed) {
					t.Errorf("of a closed socket: %v", err)
				}
				wantReturned(t, d)
				wantIdle(t, a.c, a)
			})
		})
	}
	t.Run("client", func(t *testing.T) {
		d, a, b := pair(t, Options{})
		sendRun(t, d, a, b, "1", "2")
		mustRecv(t, b, "1")
		if err := b.c.Close(); err != nil || b.in.rest != nil {
			t.Errorf("%v, %d bytes of a run are left", err, len(b.in.rest))
		}
		if _, _, err := b.RecvFrom(nil); !errors.Is(err, ErrClosed) {
			t.Errorf("of a closed client: %v", err)
		}
	})
}

// TestRunSteps: a receiver gives back a long run in parts, at most three before the last,
// and a short one as a whole.
func TestRunSteps(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []int // lengths
		steps   []int // how many parts are back after each datagram
	}{
		{"a short run", []int{1000, 1000, 20}, []int{0, 0, 0}},
		{"one just long enough", []int{508, 508, 508, 508}, []int{1, 2, 3, 3}},
		{"pieces over a quarter", []int{1020, 1020, 1020}, []int{1, 2, 2}},
		{"pieces that differ", []int{0, 1024, 4, 900, 90, 1000, 0}, []int{0, 1, 1, 2, 2, 3, 3}},
		{"small pieces", slices.Repeat([]int{60}, 40), nil},
		{"the last one is most", []int{0, 0, 1004, 1024, 0}, []int{0, 0, 1, 3, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			var payloads []string
			size := 0
			for _, n := range tt.payload {
				payloads = append(payloads, string(make([]byte, n)))
				size += 4 + (n+3)&^3
			}
			sendRun(t, d, a, b, payloads...)
			d.record = true
			read := 0
			for i, p := range payloads {
				mustRecv(t, b, p)
				read += 4 + (len(p)+3)&^3
				want := 4 * read / size // quarters
				if tt.steps != nil {
					want = tt.steps[i]
				}
				d.do(func() {
					if got := len(d.steps); got != min(want, 3) {
						t.Errorf("after datagram %d, %d of %d bytes, %d parts are back, want %d", i, read, size, got, min(want, 3))
					}
				})
			}
			wantReturned(t, d)
		})
	}
}
