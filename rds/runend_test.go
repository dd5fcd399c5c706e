package rds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestCloseDestCounts: the error of CloseDest says how many datagrams are under way, not
// how many runs.
func TestCloseDestCounts(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	d.holdSends = true
	to := b.LocalAddrPort()
	busy := func(want string) {
		t.Helper()
		if err := a.CloseDest(to); !errors.Is(err, syscall.EBUSY) || err.Error() != fmt.Sprintf("rds close destination %v: %v: %s messages are not acknowledged", to, syscall.EBUSY, want) {
			t.Errorf("%v, want %s messages", err, want)
		}
	}
	for range 3 {
		mustSend(t, a, "x", b)
	}
	busy("3") // an open run
	wantTaken(t, d, 3)
	busy("3")
	mustSend(t, a, "", b)
	busy("4")
	d.step()
	d.releaseAll()
	if err := a.CloseDest(to); err != nil {
		t.Error(err)
	}
	wantIdle(t, a.c, a)
}

// TestRunCanceled: CancelSentTo withdraws the run that is open, and what is sent behind it
// goes into another.
func TestRunCanceled(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	d.holdSends = true
	mustSend(t, a, "1", b)
	mustSend(t, a, "2", b)
	if err := a.CancelSentTo(b.LocalAddrPort()); err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, "3", b)
	wantTaken(t, d, 2, 1)
	d.releaseAll()
	wantReceived(t, b, "3")
	wantIdle(t, a.c, a)
}

// TestRunOpenAtClose: a socket may close while its run is open. What it sent before is
// delivered, and everything the run had is free again.
func TestRunOpenAtClose(t *testing.T) {
	for name, end := range map[string]func(d *fakeDaemon, a *Socket) error{
		"close":   func(_ *fakeDaemon, a *Socket) error { return a.Close() },
		"waits":   func(_ *fakeDaemon, a *Socket) error { return a.CloseWait(bg()) },
		"lingers": func(_ *fakeDaemon, a *Socket) error { return a.CloseWait(bg()) },
		"client":  func(_ *fakeDaemon, a *Socket) error { return a.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			resume := d.pause()
			d.record = true
			mustSend(t, a, "1", b)
			mustSend(t, a, "2", b)
			ended := make(chan error)
			go func() { ended <- end(d, a) }()
			for !a.closed.Load() {
				time.Sleep(time.Millisecond)
			}
			if _, err := a.SendTo([]byte("3"), b.LocalAddrPort()); !errors.Is(err, ErrClosed) {
				t.Errorf("a send of a closed socket: %v", err)
			}
			if n, err := a.SendBatch(context.Background(), batchOf(b.LocalAddrPort(), "3", "4")); n != 0 || !errors.Is(err, ErrClosed) {
				t.Errorf("a batch of a closed socket: %d, %v", n, err)
			}
			wantTaken(t, d, 2)
			resume()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if name != "client" {
				wantReceived(t, b, "1", "2")
				wantIdle(t, a.c, a, b)
			}
		})
	}
}

// TestRunCloseWaits: CloseWait waits for a run as for its datagrams.
func TestRunCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		d.do(func() { d.holdSends = true })
		if n, err := a.SendBatch(context.Background(), batchOf(b.LocalAddrPort(), "1", "", "3")); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		began := time.Now()
		time.AfterFunc(time.Second, func() { d.do(func() { d.releaseAll() }) })
		if err := a.CloseWait(bg()); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		wantReceived(t, b, "1", "", "3")
		wantIdle(t, a.c, a)
	})
}

// TestBatchErrors: a batch that meets an error in its middle has sent what goes before,
// and nothing of what follows is written, charged or uncommitted.
func TestBatchErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params Params
		cause  func(d *fakeDaemon, a, b *Socket, ms []Message)
		want   error
		n      int // sent
	}{
		{"send buffer", Params{}, func(_ *fakeDaemon, a, _ *Socket, _ []Message) { a.SetSndBuf(5) }, ErrWouldBlock, 5},
		{"too long", Params{}, func(_ *fakeDaemon, _, _ *Socket, ms []Message) { ms[6].Payload = make([]byte, MaxMessage+1) }, ErrMessageTooLong, 6},
		{"above the send buffer", Params{}, func(_ *fakeDaemon, a, _ *Socket, ms []Message) {
			a.SetSndBuf(100)
			ms[4].Payload = make([]byte, 101)
		}, ErrMessageTooLong, 4},
		{"no destination", Params{}, func(_ *fakeDaemon, _, _ *Socket, ms []Message) { ms[3].Addr = (&Socket{}).local }, ErrInvalid, 3},
		{"congested", Params{}, func(d *fakeDaemon, a, b *Socket, ms []Message) {
			mustSend(t, a, "x", b)
			d.step()
			d.setSlotCongested(d.slots[a.lastDest.slot], true)
			for i := range 7 {
				ms[i].Addr = stuckAt(1)
			}
		}, ErrCongested, 7},
		{"message ids", Params{MaxMsgs: 4}, func(_ *fakeDaemon, a, b *Socket, ms []Message) {
			for i := range ms {
				ms[i].Addr = stuckAt(1 + i/2)
			}
		}, ErrWouldBlock, 8},
		{"submission ring", Params{SubEntries: 16}, func(_ *fakeDaemon, _, _ *Socket, ms []Message) {
			for i := range ms {
				ms[i].Addr = stuckAt(1 + i)
			}
		}, ErrWouldBlock, 6},
		{"destinations", Params{Slots: 2}, func(_ *fakeDaemon, _, _ *Socket, ms []Message) {
			for i := range ms {
				ms[i].Addr = stuckAt(1 + i/3)
			}
		}, ErrTooManyDestinations, 6},
		{"cookie", Params{}, func(_ *fakeDaemon, _, _ *Socket, ms []Message) { ms[5].Cookie = 7 }, ErrInvalid, 5},
		{"deadline", Params{}, func(_ *fakeDaemon, a, _ *Socket, _ []Message) { a.wdl.expired.Store(true) }, os.ErrDeadlineExceeded, 0},
		{"overrun", Params{}, func(_ *fakeDaemon, a, _ *Socket, _ []Message) { a.end.Store(&ErrOverrun) }, ErrOverrun, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, a, b := pair(t, Options{Params: tt.params})
			d.recording(t)
			ms := batchOf(b.LocalAddrPort(), "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
			tt.cause(d, a, b, ms)
			d.step()
			a.c.tx.poll()
			d.taken = nil
			if n, err := a.SendBatch(DontWait, ms); n != tt.n || !errors.Is(err, tt.want) {
				t.Errorf("%d sent, %v; want %d, %v", n, err, tt.n, tt.want)
			} else if errors.Is(err, ErrMessageTooLong) && !strings.Contains(err.Error(), "room for "+strconv.Itoa(a.sndbuf)) {
				t.Errorf("%v does not say how long it may be", err)
			}
			charged := 0
			for _, x := range a.busy {
				charged += x.datagrams
			}
			if charged != tt.n || a.queued != tt.n || a.c.tx.cur != nil {
				t.Errorf("%d datagrams of %d bytes are charged, uncommitted ones %v", charged, a.queued, a.c.tx.cur != nil)
			}
			n := 0
			for _, k := range d.tookIn() {
				n += k
			}
			if n != tt.n {
				t.Errorf("the daemon took %d datagrams, want %d", n, tt.n)
			}
			d.releaseAll()
			wantIdle(t, a.c, a)
		})
	}
}

// TestErrorBehindUncommitted: an error in the middle of a batch leaves the frames ahead of
// it to be committed, whatever it is.
func TestErrorBehindUncommitted(t *testing.T) {
	for name, tt := range map[string]struct {
		cause func(a *Socket)
		want  error
	}{
		"closed":   {func(a *Socket) { a.closed.Store(true) }, ErrClosed},
		"deadline": {func(a *Socket) { a.wdl.expired.Store(true) }, os.ErrDeadlineExceeded},
		"overrun":  {func(a *Socket) { a.end.Store(&ErrOverrun) }, ErrOverrun},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			d.recording(t)
			tx, m := &a.c.tx, outMsg{p: []byte("1"), to: b.LocalAddrPort(), id: noID}
			tx.mu.Lock()
			err := tx.submit(a, &m, false)
			tt.cause(a)
			second := tx.submit(a, &m, false)
			n, done := tx.commitBatch(1, 0)
			tx.publish()
			tx.mu.Unlock()
			a.closed.Store(false)
			if err != nil || !errors.Is(second, tt.want) || n != 1 || done != 1 {
				t.Errorf("%v, then %v with %d sent and %d committed", err, second, n, done)
			}
			wantTaken(t, d, 1)
			wantReceived(t, b, "1")
			wantIdle(t, a.c, a)
		})
	}
}
