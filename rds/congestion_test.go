package rds

import (
	"errors"
	"testing"
	"testing/synctest"
)

// fill makes s congested with one message from a, relieve takes it.
func fill(t testing.TB, a, s *Socket) {
	t.Helper()
	if err := s.SetRcvBuf(1); err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, "full", s)
}

// failSend shows that a send without waiting fails.
func failSend(t testing.TB, a, s *Socket) {
	t.Helper()
	m := Message{Addr: s.LocalAddrPort()}
	if _, err := a.Send(DontWait, &m); !errors.Is(err, ErrCongested) {
		t.Fatal(err)
	}
}

// TestCongUpdates: relief is reported once, and only for what failed.
func TestCongUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, noSpin)
		c, same := bindFake(t, a.c, "127.0.0.1:4003"), bindFake(t, a.c, "127.0.0.1:4065") // 4065 = 4001 mod 64
		for _, s := range []*Socket{b, c, same} {
			fill(t, a, s)
		}
		synctest.Wait()
		failSend(t, a, b) // the monitor is off
		(kernelSocket{a}).SetCongMonitor(true)
		for range 2 {
			failSend(t, a, c)
		}
		if mask := (kernelSocket{a}).CongUpdates(); mask != 0 {
			t.Fatalf("mask %#x while congested", mask)
		}
		mustRecv(t, same, "full") // no send to it failed
		mustRecv(t, b, "full")    // failed before the monitor was on
		synctest.Wait()
		if mask := (kernelSocket{a}).CongUpdates(); mask != 0 {
			t.Fatalf("mask %#x for what did not fail", mask)
		}
		woken := make(chan WaitSet)
		go func() {
			got, err := a.Wait(bg(), WaitSet{congestion: true})
			if err != nil {
				t.Error(err)
			}
			woken <- got
		}()
		synctest.Wait()
		mustRecv(t, c, "full")
		if got := <-woken; !got.congestion {
			t.Fatalf("%+v", got)
		}
		for _, want := range []uint64{1 << (4003 % 64), 0} {
			if mask := (kernelSocket{a}).CongUpdates(); mask != want {
				t.Fatalf("mask %#x, want %#x", mask, want)
			}
		}
		// Off forgets.
		fill(t, a, c)
		synctest.Wait()
		failSend(t, a, c)
		(kernelSocket{a}).SetCongMonitor(false)
		mustRecv(t, c, "full")
		synctest.Wait()
		if mask := (kernelSocket{a}).CongUpdates(); mask != 0 {
			t.Fatalf("mask %#x with the monitor off", mask)
		}
	})
}

// TestCongEvicted: nobody announces the relief of a slot that was closed, so
// closing it is reported.
func TestCongEvicted(t *testing.T) {
	d, a, b := pair(t, Options{Params: Params{Slots: 2}})
	fill(t, a, b)
	d.do(func() {})
	(kernelSocket{a}).SetCongMonitor(true)
	failSend(t, a, b)
	for i := range 3 {
		s := bindFake(t, a.c, "127.0.0.1:0")
		mustSend(t, a, "x", s)
		mustRecv(t, s, "x")
		if i == 2 && (kernelSocket{a}).CongUpdates() != 1<<(4001%64) {
			t.Error("a destination that nobody watches is not reported")
		}
	}
}
