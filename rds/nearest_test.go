package rds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// TestNearest: a batch to many destinations reaches each of them in order, also where two have one
// place in Socket.near, one has been closed and opened again, one is congested, or the daemon has
// taken the runs of some.
func TestNearest(t *testing.T) {
	d, a, b := pair(t, Options{Spin: -1})
	var to []*Socket
	for _, port := range []uint16{20000, 20001, 20002, 20000 + mostNear, 20001 + mostNear} {
		s, err := b.c.Bind(netip.AddrPortFrom(b.LocalAddrPort().Addr(), port))
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, s)
	}
	d.recording(t)
	want := make([][]string, len(to))
	n := 0
	send := func(each int) {
		t.Helper()
		var ms []Message
		for range each {
			for i, s := range to {
				text := fmt.Sprint(n)
				n++
				ms = append(ms, Message{Payload: []byte(text), Addr: s.LocalAddrPort()})
				want[i] = append(want[i], text)
			}
		}
		if k, err := a.SendBatch(DontWait, ms); k != len(ms) || err != nil {
			t.Fatalf("%d of %d: %v", k, len(ms), err)
		}
	}
	take := func() {
		t.Helper()
		d.step()
		for i, s := range to {
			wantReceived(t, s, want[i]...)
			want[i] = nil
		}
	}
	send(3)
	send(2)
	wantTaken(t, d, 5, 5, 5, 5, 5) // one run for each
	take()
	send(2)
	take()
	closed := a.dests[to[4].LocalAddrPort()]
	a.c.tx.poll()
	if err := a.CloseDest(closed.to); err != nil {
		t.Fatal(err)
	}
	if a.nearest(&closed.to) == closed {
		t.Error("a closed destination is found")
	}
	if err := a.sendOpening(d, to[4], &want[4]); err != nil {
		t.Fatal(err)
	}
	send(2)
	take()

	send(1) // to[2] has a run that is open
	d.setSlotCongested(d.slots[a.dests[to[2].LocalAddrPort()].slot], true)
	ms := batchOf(to[0].LocalAddrPort(), "x", "y")
	ms[1].Addr = to[2].LocalAddrPort()
	if k, err := a.SendBatch(DontWait, ms); k != 1 || !errors.Is(err, ErrCongested) {
		t.Errorf("a batch with a congested destination: %d, %v", k, err)
	}
	want[0] = append(want[0], "x")
	take()
	a.c.tx.poll()
	wantIdle(t, a.c, a)
}

// TestRunTakenBetween: the daemon takes a run without the last frames of a batch, which goes on to
// another destination. The batch ends ahead of these frames.
func TestRunTakenBetween(t *testing.T) {
	d, a, b := pair(t, Options{})
	c, err := b.c.Bind(netip.AddrPortFrom(b.LocalAddrPort().Addr(), 20000))
	if err != nil {
		t.Fatal(err)
	}
	d.recording(t)
	mustSend(t, a, "1", b)
	tx, ms := &a.c.tx, batchOf(b.LocalAddrPort(), "2", "3")
	tx.mu.Lock()
	if err := tx.submit(a, &outMsg{p: ms[0].Payload, to: ms[0].Addr, id: noID}, false); err != nil {
		t.Fatal(err)
	}
	tx.mu.Unlock()
	wantTaken(t, d, 1)
	cur := tx.cur
	tx.cur = nil
	mustSend(t, a, "a", c)
	ms[1].Addr = c.LocalAddrPort()
	tx.mu.Lock()
	tx.cur = cur
	if n, done := tx.appendMore(a, ms, 1, 0); n != 0 || done != 0 {
		t.Errorf("%d datagrams count as sent, %d as committed", n, done)
	}
	tx.mu.Unlock()
	if n, err := a.SendBatch(DontWait, ms); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	d.step()
	wantReceived(t, b, "1", "2")
	wantReceived(t, c, "a", "3")
	wantIdle(t, a.c, a)
}

// sendOpening sends to a destination that is opened for it.
func (s *Socket) sendOpening(d *fakeDaemon, to *Socket, want *[]string) error {
	*want = append(*want, "opens")
	_, err := s.SendBatch(context.Background(), batchOf(to.LocalAddrPort(), "opens"))
	d.step()
	return err
}
