package rds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
)

// asks sends a message to b that asks for its status.
func asks(t *testing.T, a, b *Socket, token uint64) {
	t.Helper()
	if _, err := a.Send(context.Background(), &Message{Payload: []byte("asks"), Addr: b.LocalAddrPort(), Notify: true, Token: token}); err != nil {
		t.Fatal(err)
	}
}

// ends takes the next completions of a, which have these tokens and one status.
func (s *Socket) ends(t *testing.T, st Status, tokens ...uint64) {
	t.Helper()
	for _, token := range tokens {
		if _, err := s.Wait(timeout(t, time.Minute), WaitSet{Completion: true}); err != nil {
			t.Fatal(err)
		}
		var c [1]Completion
		if s.Completions(c[:]); c[0].Token != token || c[0].Status != st || c[0].ID != 0 || !c[0].To.IsLoopback() {
			t.Errorf("%+v, want token %d and %v", c[0], token, st)
		}
	}
	if n := s.Completions(make([]Completion, 4)); n != 0 {
		t.Errorf("%d more", n)
	}
}

// TestMessageStatus: each message that asks gets one status, with its token. Those between them are
// in runs.
func TestMessageStatus(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.do(func() { d.record = true })
	batch := make([]Message, 6)
	for i := range batch {
		batch[i] = Message{Payload: []byte{byte(i)}, Addr: b.LocalAddrPort(), Notify: i%3 == 2, Token: uint64(i)}
	}
	if n, err := a.SendBatch(context.Background(), batch); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	for i := range batch {
		mustRecv(t, b, string([]byte{byte(i)}))
	}
	a.ends(t, Success, 2, 5)
	d.do(func() {
		if !slices.Contains(d.taken, 0) || slices.Max(d.taken) == 0 {
			t.Errorf("taken %v", d.taken)
		}
	})
	if err := a.CloseWait(timeout(t, time.Minute)); err != nil {
		t.Error(err)
	}
	if a.promised.Load() != 0 || a.queuedComps.Load() != 0 {
		t.Errorf("%d promised, %d queued", a.promised.Load(), a.queuedComps.Load())
	}
}

// TestMessageStatusBad: what may not ask, and whom one cannot ask.
func TestMessageStatusBad(t *testing.T) {
	d, a, b, local, _, r := rdmaPair(t, Options{})
	m := Message{Addr: b.LocalAddrPort(), Notify: true, Op: &RDMA{Cookie: r.Cookie(), Local: []Segment{{local, 0, 4}}}}
	if _, err := a.Send(bg(), &m); !errors.Is(err, ErrInvalid) {
		t.Errorf("with an operation: %v", err)
	}
	m.Op, m.Atomic = nil, &Atomic{Cookie: r.Cookie(), Local: Segment{local, 0, 8}}
	if _, err := a.Send(bg(), &m); !errors.Is(err, ErrInvalid) {
		t.Errorf("with an atomic: %v", err)
	}
	d.do(func() { d.holdSends = true })
	for range a.c.tx.msgs {
		a.promised.Add(1)
	}
	m.Atomic = nil
	if _, err := a.Send(bg(), &m); !errors.Is(err, ErrCompletionsFull) {
		t.Errorf("without a place for a completion: %v", err)
	}
	a.c.tx.tells = false
	if _, err := a.Send(bg(), &m); !errors.Is(err, syscall.EOPNOTSUPP) || !strings.Contains(err.Error(), "Notify") {
		t.Errorf("of an older daemon: %v", err)
	}
}

// TestMessageStatusFound: what a status of a message that was not delivered is as an error.
func TestMessageStatusFound(t *testing.T) {
	_, a, b := pair(t, Options{})
	to := b.LocalAddrPort()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Send(bg(), &Message{Addr: to, Notify: true, Token: 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(timeout(t, time.Minute), WaitSet{Completion: true}); err != nil {
		t.Fatal(err)
	}
	var c [1]Completion
	a.Completions(c[:])
	err := c[0].Err()
	if !errors.Is(err, Dropped) || !errors.Is(err, NoSocket) || !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != "outcome: dropped: no socket" {
		t.Errorf("%+v: %v", c[0], err)
	}
	if _, err := a.Send(bg(), &Message{Addr: to, Notify: true, Token: 8}); err != nil {
		t.Fatal(err)
	}
	a.SetNotices()
	err = a.CloseWait(timeout(t, time.Minute))
	if !errors.Is(err, NoSocket) || !strings.Contains(err.Error(), "message with token 8") {
		t.Errorf("closed: %v", err)
	}
	if n := a.Completions(c[:]); n != 1 || c[0].ID != 0 || c[0].Token != 8 {
		t.Errorf("after the close: %+v", c)
	}
}

// TestMessageStatusOlder: an older daemon has taken the place of the one that was asked. A message
// comes back, and its status is Unknown. One whose status had come keeps it.
func TestMessageStatusOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		d.do(func() { d.holdSends = true })
		asks(t, a, b, 1)
		asks(t, a, b, 2)
		synctest.Wait()
		d.do(func() {
			first := d.held[0].sub.MsgID
			d.release(func(m *fakeMsg) bool { return m.sub.MsgID == first }, d.finish)
			d.older = true
			d.release(func(*fakeMsg) bool { return true }, d.finish)
		})
		for range 2 {
			mustRecv(t, b, "asks")
		}
		var c [3]Completion
		if n := a.Completions(c[:]); n != 2 || c[0].Token != 1 || c[0].Status != Success || c[1].Token != 2 || c[1].Status != Unknown {
			t.Errorf("%d: %+v", n, c)
		}
	})
}

// TestMessageStatusOlderWaits: so does one whose status a blocked process waits for.
func TestMessageStatusOlderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		d.do(func() { d.holdSends = true })
		for n := range uint64(2) {
			if n == 0 {
				asks(t, a, b, n)
			}
			done := make(chan error)
			go func() {
				_, err := a.Wait(t.Context(), WaitSet{Completion: true})
				done <- err
			}()
			synctest.Wait()
			if n == 1 {
				asks(t, a, b, n) // while the other one blocks
				synctest.Wait()
			}
			d.do(func() {
				d.older = true
				d.release(func(*fakeMsg) bool { return true }, d.finish)
			})
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			a.ends(t, Unknown, n)
		}
	})
}

// TestMessageStatusReopen: the daemon ends. Messages that ask are Unknown, as operations are.
func TestMessageStatusReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLives(t, noSpin)
		a, b := bindFake(t, l.c, "127.0.0.1:1000"), bindFake(t, l.c, "127.0.0.1:2000")
		d := l.daemons[0]
		d.do(func() { d.holdSends = true })
		asks(t, a, b, 5)
		synctest.Wait()
		l.away(d)
		l.next(nil)
		if ev := l.event(); len(ev.Sockets) != 2 || ev.Sockets[0].Unknown+ev.Sockets[1].Unknown != 1 {
			t.Errorf("%+v", ev.Sockets)
		}
		a.ends(t, Unknown, 5)
		asks(t, a, b, 6)
		mustRecv(t, b, "asks")
		a.ends(t, Success, 6)
	})
}

// TestMessageStatusHostile: a daemon that tells the status of a message that has not asked ends the client.
func TestMessageStatusHostile(t *testing.T) {
	d, a, b := pair(t, Options{})
	asks(t, a, b, 1)
	mustRecv(t, b, "asks")
	a.ends(t, Success, 1)
	d.do(func() {
		m := fakeMsg{sub: shm.Sub{MsgID: 77, Flags: shm.SubNotify}, slot: d.slots[0]}
		d.settle(m, abi.StatusSuccess, 0)
	})
	if _, err := a.Wait(timeout(t, time.Minute), WaitSet{Completion: true}); !errors.Is(err, ErrSession) || a.c.Err() == nil {
		t.Errorf("%v", err)
	}
}

// TestMessageStatusIsNoOperations: nobody gets the status of a message who waits for an operation that there is not.
func TestMessageStatusIsNoOperations(t *testing.T) {
	_, a, b := pair(t, Options{})
	asks(t, a, b, 5)
	if _, err := a.Wait(bg(), WaitSet{Completion: true}); err != nil {
		t.Fatal(err)
	}
	host := b.LocalAddrPort().Addr()
	if c, err := a.WaitOp(bg(), host, 0); !errors.Is(err, ErrInvalid) {
		t.Fatalf("WaitOp: %+v, %v", c, err)
	}
	if got, err := a.Wait(bg(), WaitSet{Status: []OpRef{{host, 0}}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Wait: %+v, %v", got, err)
	}
	a.ends(t, Success, 5)
}
