package rds

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestFrom: a payload is sent from where it lies, and its cookie comes back
// when the message is acknowledged, not before.
func TestFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := pair(t, noSpin)
		to := b.LocalAddrPort()
		buf := mustAlloc(t, a.c, 4096)
		copy(buf.Bytes()[100:], "in place")
		d.do(func() { d.holdSends = true })
		m := Message{From: Segment{buf, 100, 8}, Addr: to, ZeroCopy: true, ZeroCopyCookie: 7}
		if _, err := a.Send(context.Background(), &m); err != nil {
			t.Fatal(err)
		}
		// Also with a copied payload, an empty one and an operation.
		r, err := b.Register(mustAlloc(t, b.c, 64), 0, 64, AllowWrite)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range []Message{{Payload: []byte("copied")}, {From: Segment{Buf: buf}},
			{From: Segment{buf, 100, 2}, Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{buf, 0, 8}}}}} {
			m.Addr, m.ZeroCopy, m.ZeroCopyCookie = to, true, uint32(i)
			if _, err := a.Send(context.Background(), &m); err != nil {
				t.Fatal(i, err)
			}
		}
		mustSend(t, a, "without", b)
		copy(buf.Bytes()[100:], "IN") // what the receiver sees shows that nothing was copied
		cookies := make([]uint32, 3)
		if n := a.ZeroCopyDone(cookies); n != 0 {
			t.Fatalf("%d cookies of messages under way", n)
		}
		if _, err := a.Wait(timeout(t, time.Second), WaitSet{ZeroCopy: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() {
			got, err := a.Wait(bg(), WaitSet{ZeroCopy: true})
			if err == nil && !got.ZeroCopy {
				err = errors.New("woken for nothing")
			}
			waited <- err
		}()
		synctest.Wait()
		d.do(func() {
			d.holdSends = false
			d.release(func(*fakeMsg) bool { return true }, d.finish)
		})
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"IN place", "copied", "", "IN", "without"} {
			mustRecv(t, b, want)
		}
		if n := a.ZeroCopyDone(cookies); n != 3 || !slices.Equal(cookies, []uint32{7, 0, 1}) {
			t.Fatalf("%d cookies: %v", n, cookies)
		}
		if n := a.ZeroCopyDone(cookies); n != 1 || cookies[0] != 2 {
			t.Fatalf("%d cookies: %v", n, cookies)
		}
		if a.queued != 0 || a.zcOpen != 0 {
			t.Errorf("%d bytes queued, %d cookies open", a.queued, a.zcOpen)
		}
	})
}

// TestFromCounts: such a payload counts for the send buffer as any other.
func TestFromCounts(t *testing.T) {
	d, a, b := pair(t, Options{})
	buf := mustAlloc(t, a.c, 4096)
	if err := a.SetSndBuf(1000); err != nil {
		t.Fatal(err)
	}
	d.do(func() { d.holdSends = true })
	m := Message{From: Segment{buf, 0, 1001}, Addr: b.LocalAddrPort(), ZeroCopy: true}
	if _, err := a.Send(DontWait, &m); !errors.Is(err, ErrMessageTooLong) {
		t.Fatal(err)
	}
	m.From.Len = 1000
	if _, err := a.Send(DontWait, &m); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Send(DontWait, &m); !errors.Is(err, ErrWouldBlock) {
		t.Fatal(err)
	}
	if a.zcOpen != 1 {
		t.Errorf("%d cookies open: one of a message that failed", a.zcOpen)
	}
}

func TestBadFrom(t *testing.T) {
	_, a, b := pair(t, Options{})
	other, _ := openFake(t, Options{})
	buf, freed := mustAlloc(t, a.c, 64), mustAlloc(t, a.c, 64)
	if err := freed.Free(); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]Message{
		"of another client": {From: Segment{mustAlloc(t, other, 64), 0, 8}},
		"freed":             {From: Segment{freed, 0, 8}},
		"freed and empty":   {From: Segment{freed, 0, 0}},
		"without buffer":    {From: Segment{nil, 0, 8}},
		"beyond":            {From: Segment{buf, 60, 8}},
		"negative":          {From: Segment{buf, 0, -1}},
		"both":              {From: Segment{buf, 0, 8}, Payload: []byte("x")},
		"limit below 0":     {GiveUpAfter: -1},
		"limit too long":    {GiveUpAfter: maxGiveUp + 1},
	} {
		m.Addr = b.LocalAddrPort()
		if _, err := a.Send(context.Background(), &m); !errors.Is(err, ErrInvalid) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a.queued != 0 || len(a.c.tx.free) != len(a.c.tx.msgs) {
		t.Error("a failed send left something behind")
	}
}

// TestZeroCopyLimit: cookies that nobody takes are bounded.
func TestZeroCopyLimit(t *testing.T) {
	_, a, b := pair(t, Options{Params: Params{MaxMsgs: 8}})
	m := Message{Addr: b.LocalAddrPort(), ZeroCopy: true}
	for i := range 8 {
		m.ZeroCopyCookie = uint32(i)
		if _, err := a.Send(context.Background(), &m); err != nil {
			t.Fatal(i, err)
		}
		if _, _, err := b.RecvFrom(nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Send(context.Background(), &m); !errors.Is(err, ErrCompletionsFull) {
		t.Fatal(err)
	}
	for a.ZeroCopyDone(make([]uint32, 1)) == 0 {
		if _, err := a.Wait(bg(), WaitSet{ZeroCopy: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Send(context.Background(), &m); err != nil {
		t.Fatal(err)
	}
}

// TestFreeWhileRingFull: a message that waits for the submission ring with its
// buffer freed meanwhile is refused, and never names the buffer to the daemon.
func TestFreeWhileRingFull(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{SubEntries: 8}})
	buf := mustAlloc(t, a.c, 4096)
	mustSend(t, a, "opens the destination", b)
	d.do(func() {}) // the ring is empty
	seg := Segment{Buf: buf, Len: 8}
	for _, x := range []Message{{From: seg}, {Op: &RDMA{Write: true, Cookie: 1, Local: []Segment{seg}}}, {Atomic: &Atomic{Cookie: 1, Local: seg}}} {
		d.mu.Lock() // the daemon takes nothing
		tx := &a.c.tx
		tx.mu.Lock()
		tx.reap()
		free := len(tx.free)
		var err error
		out := outMsg{id: noID, to: b.LocalAddrPort(), x: &x}
		for err != errRingFull {
			out = outMsg{id: noID, to: b.LocalAddrPort(), x: &Message{}}
			if err = tx.submit(a, &out, false); err != nil && err != errRingFull {
				t.Fatal(err)
			}
		}
		tx.drop(&out)
		out = outMsg{id: noID, to: b.LocalAddrPort(), x: &x}
		if err := tx.submit(a, &out, false); err != errRingFull || out.id == noID {
			t.Fatalf("a full ring: %v, id %d", err, out.id)
		}
		ring := tx.publish()
		tx.mu.Unlock()
		buf.setFreed(true)
		d.mu.Unlock()
		if ring {
			a.c.ringDaemon()
		}
		d.do(func() {})
		tx.mu.Lock()
		if err := tx.submit(a, &out, false); !errors.Is(err, ErrInvalid) || out.id != noID {
			t.Errorf("%+v of a buffer that was freed: %v", x, err)
		}
		tx.reap()
		if len(tx.free) != free {
			t.Errorf("%d message ids, %d before", len(tx.free), free)
		}
		tx.mu.Unlock()
		buf.setFreed(false)
	}
}
