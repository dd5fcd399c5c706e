package engine

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
)

// pass turns these engines for ns of virtual time.
func (w *world) pass(ns int64, es ...*Engine) {
	w.t.Helper()
	end := w.net.Now() + ns
	for at := w.net.Now(); at < end; at += ms / 4 {
		w.net.At(at, func() {})
	}
	w.net.At(end, func() {})
	for n := 0; ; n++ {
		for _, e := range es {
			e.Turn(w.net.Now(), Wall(w.net.Now()))
		}
		if w.net.Now() >= end {
			return
		}
		w.net.Step()
		if n == 500_000 {
			w.t.Fatal("time does not pass")
		}
	}
}

const ms = 1_000_000

func (s *opSide) gaveUp() (n uint64) {
	s.look()
	for _, e := range s.notes {
		if e.Notice == shm.NoticeGaveUp {
			n += e.Count
		}
	}
	return n
}

// TestGiveUpLate: the limit of a message that is submitted while a turn is under way counts from then.
func TestGiveUpLate(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a := w.opSide(0, 10)
	a.open(a.sock, 0, 0, nobody(1), 20)
	w.pass(ms, a.e)
	a.e.KeepTime(func() int64 { return w.net.Now() + 3*ms }) // each turn takes so long
	a.submit(shm.Sub{Len: 1, GiveUp: 5})
	w.pass(7*ms, a.e)
	if n := a.gaveUp(); n != 0 {
		t.Errorf("%d given up too early", n)
	}
	w.pass(3*ms, a.e)
	if n := a.gaveUp(); n != 1 {
		t.Errorf("%d given up", n)
	}
}

// TestGiveUpUnsent: nobody answers. Messages with a limit end when it passes,
// not earlier: operations DROPPED, plain ones with a notice.
func TestGiveUpUnsent(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a := w.opSide(0, 10)
	e := w.es[0]
	a.open(a.sock, 0, 0, nobody(1), 20)
	w.pass(ms, e)
	// The grants that let the operations be queued.
	g := e.peers.all[0].grants
	for _, key := range []uint32{7, 8} {
		if err := g.Add(rdmaop.Grant{Cookie: uint64(key), Len: 64, Rights: abi.RightWrite | abi.RightAtomic, Port: 10}); err != nil {
			t.Fatal(err)
		}
	}
	add := a.args(a.op(abi.OpFetchAdd, 8, 0), shm.AtomicEntry{CompareAdd: 1})
	stays := a.submit(shm.Sub{Len: 4})
	one := a.submit(shm.Sub{Len: 4, GiveUp: 50}, a.op(abi.OpWrite, 7, 0))
	both := a.submit(shm.Sub{GiveUp: 30}, a.op(abi.OpWrite, 7, 0), add)
	plain := a.submit(shm.Sub{Len: 4, GiveUp: 40})
	long := a.submit(shm.Sub{Len: 4, GiveUp: ^uint32(0)})
	w.pass(29*ms, e)
	if a.look(); len(a.back)+len(a.told)+len(a.notes) != 0 {
		t.Fatalf("after 29 ms: returned %v, %d statuses, %d notices", a.back, len(a.told), len(a.notes))
	}
	w.pass(32*ms, e)
	dropped := int(abi.StatusDropped)
	if st := a.statuses(); !slices.Equal(st, []int{dropped, dropped, dropped}) || a.gaveUp() != 1 {
		t.Errorf("statuses %v, %d given up", st, a.gaveUp())
	}
	if want := []uint32{both, plain, one}; !slices.Equal(a.back, want) || a.hwm() != 3 {
		t.Errorf("returned %v, want %v; HWM %d", a.back, want, a.hwm())
	}
	if e.due.limits.Len() != 1 || a.cl.msgs[stays] == nil || a.cl.msgs[long] == nil {
		t.Errorf("%d limits left", e.due.limits.Len())
	}
	a.at.Close()
	w.run()
	if e.due.limits.Len() != 0 {
		t.Errorf("%d limits of a client that is gone", e.due.limits.Len())
	}
}

// TestGiveUpSent: what was posted and is not acked ends UNKNOWN, and is not
// sent again; it may have been delivered.
func TestGiveUpSent(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightWrite|abi.RightAtomic, a)
	a.submit(shm.Sub{Len: 4}) // meets the socket: behind it nothing waits
	w.run()
	e := w.es[0] // the peer's daemon stands still
	a.submit(shm.Sub{Len: 4, GiveUp: 20})
	a.submit(shm.Sub{GiveUp: 20}, a.op(abi.OpWrite, r.Cookie, 0), a.args(a.op(abi.OpFetchAdd, r.Cookie, 8), shm.AtomicEntry{CompareAdd: 1}))
	w.pass(19*ms, e)
	if st := a.statuses(); !slices.Equal(st, []int{-1, -1}) || a.gaveUp() != 0 {
		t.Fatalf("too early: %v", st)
	}
	w.pass(3*ms, e)
	unknown := int(abi.StatusUnknown)
	if st := a.statuses(); !slices.Equal(st, []int{unknown, unknown}) || a.gaveUp() != 1 {
		t.Errorf("statuses %v, %d given up", st, a.gaveUp())
	}
	w.run()
	a.statuses() // fails if one comes twice
	if b.look(); len(b.msgs) != 3 || a.hwm() != 2 || len(a.back) != 3 {
		t.Errorf("%d messages, HWM %d, %d ids", len(b.msgs), a.hwm(), len(a.back))
	}
	w.clean2(a, b)
}

// TestGiveUpNotSentAgain: a message given up while the connection is down is not
// sent on the next one.
func TestGiveUpNotSentAgain(t *testing.T) {
	w, a, b := opPair(t, 2)
	w.run()
	a.submit(shm.Sub{Len: 4})
	w.run()
	p := a.e.peers.all[0]
	a.submit(shm.Sub{Len: 4, GiveUp: 1})
	p.c.Reset(w.net.Now(), errAdmin)
	a.e.dirty.touch(p)
	w.pass(3*ms, a.e)
	if a.gaveUp() != 1 {
		t.Fatal("not given up")
	}
	a.submit(shm.Sub{Len: 4})
	w.run()
	if b.look(); len(b.msgs) != 2 {
		t.Errorf("%d messages, want the first and the last", len(b.msgs))
	}
	w.clean2(a, b)
}

// TestGiveUpLocal: a message that waits for room at a socket of this host is
// withdrawn wherever it stands in the queue; the others go on.
func TestGiveUpLocal(t *testing.T) {
	w := newWorld(t, 1, Config{HardCap: 1})
	a, b := w.opSide(0, 10), w.opSide(0, 20)
	r := b.expose(0, 64, abi.RightWrite, a)
	b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 100})
	a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, 20)
	w.run()
	send := func(n, limit uint32, ops ...shm.SubOp) uint32 {
		return a.submit(shm.Sub{Len: n, GiveUp: limit}, ops...)
	}
	send(100, 0)
	send(10, 20) // at the head, refused
	send(11, 0)
	send(12, 20, a.op(abi.OpWrite, r.Cookie, 0)) // behind it: never began
	send(13, 0)
	w.pass(30*ms, w.es[0])
	if st := a.statuses(); !slices.Equal(st, []int{int(abi.StatusDropped)}) || a.gaveUp() != 1 || a.hwm() != 1 {
		t.Errorf("statuses %v, %d given up, HWM %d", st, a.gaveUp(), a.hwm())
	}
	b.look()
	b.seg.RecvRetProducer().Put(b.msgs[0].RxID)
	b.seg.RecvRetProducer().Publish()
	b.at.RingDaemon()
	w.run()
	var got []uint32
	for b.look(); len(b.msgs) > 0; b.msgs = b.msgs[1:] {
		got = append(got, b.msgs[0].Len)
	}
	if want := []uint32{100, 11, 13}; !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	w.clean2(a, b)
}

// TestSettlement: what each end of a message means for its operations.
func TestSettlement(t *testing.T) {
	type want struct{ queued, posted, local abi.Status }
	all := func(s abi.Status) want { return want{s, s, s} }
	const (
		ok, remote, canceled   = abi.StatusSuccess, abi.StatusRemoteError, abi.StatusCanceled
		dropped, unknown, none = abi.StatusDropped, abi.StatusUnknown, abi.Status(255)
	)
	for _, c := range []struct {
		o        msg.Outcome
		bad, sib want // of the operation at fault, if one is, and of the others
	}{
		{msg.Acked, want{none, ok, ok}, want{none, ok, ok}},
		{msg.Cancelled, all(canceled), all(canceled)},
		{msg.NoSock, want{none, dropped, dropped}, want{none, dropped, dropped}},
		{msg.Lost, want{dropped, unknown, unknown}, want{dropped, unknown, unknown}},
		{msg.Unknown, want{dropped, unknown, unknown}, want{dropped, unknown, unknown}},
		{msg.Dropped, want{none, dropped, dropped}, want{none, dropped, dropped}},
		{msg.OpFailed, want{none, remote, remote}, want{none, dropped, dropped}},
		{msg.OpRefused, want{remote, none, none}, want{dropped, none, none}},
		{msg.Withdrawn, all(dropped), all(dropped)},
		{msg.GaveUp, want{none, unknown, unknown}, want{none, unknown, unknown}},
	} {
		for bad := range 2 {
			for path, events := range [][]rdmaop.EventType{{}, {rdmaop.EvPost}, {rdmaop.EvPost, rdmaop.EvLocal}} {
				x := &txMsg{opv: [2]*txOp{{}, {}}, nops: 2}
				x.m.Bad = &x.opv[bad].Op
				x.m.WCStatus = 10 // remote access error
				for i, op := range x.ops() {
					op.Step(rdmaop.Event{Type: rdmaop.EvQueue})
					for _, ev := range events {
						op.Step(rdmaop.Event{Type: ev})
					}
					w := c.sib
					if i == bad {
						w = c.bad
					}
					status := [3]abi.Status{w.queued, w.posted, w.local}[path]
					if status == none {
						continue
					}
					eff, err := op.Step(x.settlement(op, c.o))
					if err != nil || eff&rdmaop.Report == 0 || op.Status() != status {
						t.Errorf("%v, operation %d of which %d is at fault, after %v: %v, %v; want %v", c.o, i, bad, events, op.Status(), err, status)
					}
				}
			}
		}
	}
}
