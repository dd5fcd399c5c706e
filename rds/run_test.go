package rds

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/shm"
)

// TestRunAppends: what is sent before the daemon has taken the run goes into it, and what
// is sent afterwards into another.
func TestRunAppends(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	mustSend(t, a, "1", b)
	mustSend(t, a, "2", b)
	mustSend(t, a, "", b)
	wantTaken(t, d, 3)
	mustSend(t, a, "3", b)
	wantTaken(t, d, 1)
	for _, p := range []string{"4", "5"} {
		if n, err := a.SendBatch(context.Background(), batchOf(b.LocalAddrPort(), p, p)); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	mustSend(t, a, "6", b)
	wantTaken(t, d, 5)
	wantReceived(t, b, "1", "2", "", "3", "4", "4", "5", "5", "6")
	wantIdle(t, a.c, a, b)
}

// TestRunSizes: a run takes what fits, grows where much is sent, and shrinks where little
// is. A payload that is longer than runMax is no part of a run.
func TestRunSizes(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	b.c.rx.mu.Lock()
	b.rcvbuf = 1 << 20
	b.c.rx.mu.Unlock()
	send := func(n, size int) {
		for range n {
			if _, err := a.SendTo(make([]byte, size), b.LocalAddrPort()); err != nil {
				t.Fatal(err)
			}
		}
	}
	chunk := func() int { return len(a.lastDest.run.mem) }
	send(1, 60)
	if chunk() != leastRun {
		t.Errorf("the first run has %d bytes, want %d", chunk(), leastRun)
	}
	send(400, 60)
	if chunk() != mostRun {
		t.Errorf("after 400 datagrams a run has %d bytes, want %d", chunk(), mostRun)
	}
	n := 0
	for _, k := range d.tookIn() {
		n += k
	}
	if n != 401 {
		t.Errorf("the runs have %d datagrams, want 401", n)
	}
	for range 10 {
		send(1, 60)
		wantTaken(t, d, 1)
		send(1, 60)
		wantTaken(t, d, 1)
	}
	if got := a.lastDest.run.size; got != leastRun {
		t.Errorf("after lone datagrams a run has %d bytes, want %d", got, leastRun)
	}
	send(1, runMax)
	send(1, runMax+1)
	wantTaken(t, d, 1, 0)
	if got := len(recvAll(t, b)); got != 423 {
		t.Errorf("%d datagrams received, want 423", got)
	}
	wantIdle(t, a.c, a, b)
}

// TestRunTakenInBatch: frames that the daemon took the run without go into another run,
// each once and in order, and the counts are those of what was sent.
func TestRunTakenInBatch(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	tx, to := &a.c.tx, b.LocalAddrPort()
	mustSend(t, a, "1", b)
	for range 2 {
		d.keepIDs = true
		tx.mu.Lock()
		if err := tx.submit(a, &outMsg{p: []byte("2"), to: to, id: noID}, false); err != nil {
			t.Fatal(err)
		}
		n, done := tx.appendMore(a, batchOf(to, "2", "", "3"), 1, 0)
		if n != 3 {
			t.Fatal(n)
		}
		wantTaken(t, d, 1)
		if n, done = tx.commitBatch(n, done); n != 0 || done != 0 {
			t.Errorf("%d datagrams count as sent, %d as committed", n, done)
		}
		tx.mu.Unlock()
		if n, err := a.SendBatch(context.Background(), batchOf(to, "2", "", "3", "1")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		if x := a.dests[to]; x.datagrams-len(d.unacked) != 4 || x.queued-len(d.unacked) != 3 {
			t.Errorf("%d datagrams of %d bytes are charged, with %d of another run", x.datagrams, x.queued, len(d.unacked))
		}
		wantTaken(t, d, 4)
		wantReceived(t, b, "1", "2", "", "3", "1")
		for _, id := range d.unacked {
			d.ack(id)
		}
		d.unacked = nil
		d.publish()
		wantIdle(t, a.c, a)
		mustSend(t, a, "1", b)
	}
	wantTaken(t, d, 1)
}

// TestRunOvertaken: nothing that is sent behind a message of another kind goes into the
// run ahead of it.
func TestRunOvertaken(t *testing.T) {
	d, a, b, local, _, r := rdmaPair(t, Options{})
	to := b.LocalAddrPort()
	for name, m := range map[string]Message{
		"operation": {Op: &RDMA{Write: true, Cookie: r.Cookie(), Local: []Segment{{local, 0, 8}}}},
		"cookie":    {Cookie: r.Cookie()},
		"limit":     {GiveUpAfter: time.Hour},
		"instance":  {DstInc: 1},
		"zero copy": {From: Segment{local, 0, 8}, ZeroCopy: true},
		"long":      {Payload: make([]byte, runMax+1)},
		"large":     {Payload: make([]byte, inlineCopy+1)},
	} {
		t.Run(name, func(t *testing.T) {
			resume := d.pause()
			d.record = true
			p := "12345678"
			if copy(local.Bytes(), p); m.From.Buf == nil && m.Payload == nil {
				m.Payload = make([]byte, len(p))
			}
			copy(m.Payload, p)
			m.Addr = to
			mustSend(t, a, "1", b)
			mustSend(t, a, "2", b)
			if _, err := a.Send(context.Background(), &m); err != nil {
				t.Fatal(err)
			}
			mustSend(t, a, "3", b)
			if n, err := a.SendBatch(context.Background(), []Message{{Payload: []byte("4"), Addr: to}, m, {Payload: []byte("5"), Addr: to}}); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			wantTaken(t, d, 2, 0, 2, 0, 1)
			wantReceived(t, b, "1", "2", p, "3", "4", p, "5")
			a.ZeroCopyDone(make([]uint32, 8))
			wantIdle(t, a.c, a, b)
			resume()
		})
	}
}

// TestRunBesideLargeCopy: a run that somebody opens while a large payload is copied is
// ahead of it. So what is sent behind the large one does not go into that run.
func TestRunBesideLargeCopy(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	tx := &a.c.tx
	large := outMsg{p: make([]byte, inlineCopy+1), to: b.LocalAddrPort(), id: noID}
	submit := func() error {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		err := tx.submit(a, &large, false)
		tx.publish()
		return err
	}
	if err := submit(); !errors.Is(err, errCopy) {
		t.Fatal(err)
	}
	mustSend(t, a, "1", b)
	copy(large.dst, large.p)
	large.copied = true
	a.c.pins.Done()
	if err := submit(); err != nil {
		t.Fatal(err)
	}
	mustSend(t, a, "2", b)
	wantTaken(t, d, 1, 0, 1)
}

// TestRunOverNotice: what is sent after a notice was readable is not in a run that was
// opened before it. Else the datagrams ahead of the notice and those behind it could not
// end differently.
func TestRunOverNotice(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	mustSend(t, a, "open", b)
	wantTaken(t, d, 1)
	mustSend(t, a, "1", b)
	d.notice(d.slots[a.lastDest.slot], shm.NoticeNoSocket, 1)
	d.flushEvents()
	mustSend(t, a, "2", b) // the notice is in the ring, and nobody can have read it
	if n := a.Notices(make([]Notice, 2)); n != 1 {
		t.Fatalf("%d notices", n)
	}
	mustSend(t, a, "3", b)
	if n, err := a.SendBatch(context.Background(), batchOf(b.LocalAddrPort(), "4", "5")); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	wantTaken(t, d, 2, 3)
	wantReceived(t, b, "open", "1", "2", "3", "4", "5")
}

// TestPingInNoRun: a message to port 0 is a ping, which travels alone.
func TestPingInNoRun(t *testing.T) {
	d, a, b := pair(t, Options{})
	d.recording(t)
	ping := netip.AddrPortFrom(d.local, 0)
	send := func(to netip.AddrPort) {
		t.Helper()
		if _, err := a.SendTo(nil, to); err != nil {
			t.Fatal(err)
		}
	}
	send(ping)
	send(ping)
	if n, err := a.SendBatch(context.Background(), []Message{{Addr: b.LocalAddrPort()}, {Addr: ping}, {Addr: ping}, {Addr: b.LocalAddrPort()}}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	wantTaken(t, d, 0, 0, 2, 0, 0)
}
