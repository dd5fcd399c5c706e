package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// reasons takes what r is told of hosts that are not reached.
func (r *raw) reasons() (out []uint8) {
	for _, e := range r.events() {
		if n := e.Notice(); n.Kind == shm.EvNotice && n.Notice == shm.NoticeUnreachable {
			out = append(out, n.Reason)
		}
	}
	return out
}

func (r *raw) wantReason(slot uint32, why uint8, notices int) {
	r.w.t.Helper()
	got := r.reasons()
	if len(got) != notices || notices > 0 && got[0] != why {
		r.w.t.Errorf("told %v, want %d notices with %d", got, notices, why)
	}
	if word := r.cl.table.Slot(slot).LoadUnreachable(); word != uint32(why) {
		r.w.t.Errorf("the slot says %d, want %d", word, why)
	}
}

// A host that is not reached is told once, however often it is tried, and again
// when the reason changes. A destination that is opened meanwhile knows, too.
func TestUnreachableTold(t *testing.T) {
	w := newWorld(t, 2, Config{})
	r, srv := w.attach(0, smallParams()), w.attach(1, smallParams())
	srv.bind(10)
	s := r.bind(9)
	w.net.Faults.Unreachable = 1e6
	r.open(s, 0, 0, hostAddr(1), 10)
	w.wait(1_000_000_000)
	r.wantReason(0, 0, 0) // nothing was sent: nobody tried
	r.sendMsg(s, 0, 0, 10)
	w.wait(1_000_000_000)
	r.wantReason(0, shm.ReachNoRoute, 1)
	w.wait(20_000_000_000)
	r.wantReason(0, shm.ReachNoRoute, 0)
	r.open(s, 1, 0, hostAddr(1), 11)
	w.wait(100_000_000)
	r.wantReason(1, shm.ReachNoRoute, 1)

	w.net.Faults.Unreachable, w.net.Faults.Refuse = 0, 1e6
	w.wait(3_000_000_000)
	r.wantReason(0, shm.ReachRefused, 2) // two destinations
	failed := make(chan error, 1)
	if _, err := w.es[0].Ping(hostAddr(1), 0, 0, make(chan struct{}, 1), func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	w.wait(3_000_000_000)
	select {
	case err := <-failed:
		if reachOf(err) != shm.ReachRefused {
			t.Errorf("the ping ended with %v", err)
		}
	default:
		t.Error("the ping still waits")
	}

	w.net.Faults.Refuse = 0
	w.wait(3_000_000_000)
	r.wantReason(0, 0, 0)
	if srv.read() != 1 {
		t.Error("the message did not arrive")
	}
}

// A host that policy forbids is told as soon as it is a destination, and reached
// when the policy changes. A ping there fails at once.
func TestForbiddenTold(t *testing.T) {
	forbidden := ErrNotAllowed
	w := newWorld(t, 2, Config{Allowed: func(netip.Addr) error { return forbidden }})
	r, srv := w.attach(0, smallParams()), w.attach(1, smallParams())
	srv.bind(10)
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(1), 10)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	r.wantReason(0, shm.ReachForbidden, 1)
	if _, err := w.es[0].Ping(hostAddr(1), 0, 0, nil, nil); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("ping: %v", err)
	}
	w.wait(10_000_000_000)
	r.wantReason(0, shm.ReachForbidden, 0)
	forbidden = nil
	w.es[0].peers.allowedAnew(w.es[0].peers.all[0])
	w.wait(1_000_000_000)
	r.wantReason(0, 0, 0)
	if srv.read() != 1 {
		t.Error("the message did not arrive")
	}
	forbidden = ErrNotAllowed
	w.es[0].peers.allowedAnew(w.es[0].peers.all[0])
	w.wait(1_000_000_000)
	r.wantReason(0, shm.ReachForbidden, 1)
}

// A host that is forbidden between two attempts to reach it has that as its last error at once.
func TestForbiddenBetween(t *testing.T) {
	var forbidden error
	w := newWorld(t, 1, Config{Allowed: func(netip.Addr) error { return forbidden }})
	r, e := w.attach(0, smallParams()), w.es[0]
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(1), 10)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	p := e.peers.all[0]
	for n := 0; n < 100 && p.c.Info().RetryAt == 0; n++ {
		w.wait(50_000_000)
	}
	if i := p.c.Info(); i.State != conn.Down || i.RetryAt == 0 || i.LastError == nil {
		t.Fatalf("no attempt has failed: %+v", i)
	}
	forbidden = ErrNotAllowed
	e.peers.allowedAnew(p)
	if i := p.c.Info(); !errors.Is(i.LastError, ErrNotAllowed) {
		t.Errorf("last error: %v", i.LastError)
	}
}

// TestReachOf: what an attempt ended with is what the program is told.
func TestReachOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want uint8
	}{
		"forbidden":                 {fmt.Errorf("peer: %w", ErrNotAllowed), shm.ReachForbidden},
		"no daemon":                 {unix.ECONNREFUSED, shm.ReachRefused},
		"no route":                  {unix.ENETUNREACH, shm.ReachNoRoute},
		"no answer to SYN":          {unix.ETIMEDOUT, shm.ReachTimeout},
		"no answer to a request":    {fmt.Errorf("no MPA reply: %w", os.ErrDeadlineExceeded), shm.ReachTimeout},
		"large packets do not pass": {fmt.Errorf("no MPA reply: %w", errors.Join(verbs.ErrLarge, os.ErrDeadlineExceeded)), shm.ReachOther},
		"turned away":               {conn.ErrRejected, shm.ReachRejected},
		"too busy for long":         {fmt.Errorf("%w: %w", conn.ErrRejected, verbs.ErrBusy), shm.ReachOther},
		"another":                   {unix.EPROTO, shm.ReachOther},
	} {
		if got := reachOf(c.err); got != c.want {
			t.Errorf("%s (%v): %d, want %d", name, c.err, got, c.want)
		}
	}
}

// A host whose own request is on its way, or that is too busy, is reached, however often it says so. One that
// rejects otherwise is not.
func TestCrossedUntold(t *testing.T) {
	w := newWorld(t, 2, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(9)
	r.open(s, 0, 0, hostAddr(1), 10)
	r.sendMsg(s, 0, 0, 10)
	w.run()
	e := w.es[0]
	for range 5 {
		e.peers.unreached(e.peers.all[0], conn.ErrCrossed)
		e.peers.unreached(e.peers.all[0], fmt.Errorf("%w: %w", conn.ErrLater, verbs.ErrBusy))
	}
	r.wantReason(0, 0, 0)
	for range 2 {
		e.peers.unreached(e.peers.all[0], conn.ErrRejected)
	}
	w.run()
	r.wantReason(0, shm.ReachRejected, 1)
}

// TestUnreachableForgotten: once nobody tries to reach a host any more, its destinations do not say
// that it is not reached, and the next attempt that fails is told.
func TestUnreachableForgotten(t *testing.T) {
	w := newWorld(t, 2, Config{})
	r := w.attach(0, smallParams())
	s := r.bind(9)
	w.net.Faults.Unreachable = 1e6
	r.open(s, 0, 0, hostAddr(1), 10)
	for i := range uint32(3) {
		r.sendMsg(s, 0, i, 10)
		w.wait(3_000_000_000)
		r.wantReason(0, shm.ReachNoRoute, 1)
		r.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: s} })
		w.wait(3_000_000_000)
		r.wantReason(0, 0, 0)
	}
}

// TestWithdrawUnsent: a process withdraws one message that has not gone out. Its operation is
// Dropped and never comes. One that has gone out goes on, and so do the others.
func TestWithdrawUnsent(t *testing.T) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightWrite, a)
	withdraw := func(sock, id uint32) {
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: sock, Slot: shm.NoSlot, MsgID: id} })
	}
	write := func(v byte) uint32 {
		a.mem[v*8] = v
		op := a.op(abi.OpWrite, r.Cookie, uint64(v)*8)
		op.Off = uint64(v) * 8
		return a.submit(shm.Sub{Len: 4}, op)
	}
	a.submit(shm.Sub{Len: 4}) // meets the socket: behind it nothing waits
	w.run()
	sent := write(1)
	w.pass(ms, w.es[0]) // the peer's daemon stands still
	withdraw(a.sock, sent)
	w.pass(ms, w.es[0])
	if st := a.statuses(); st[0] != -1 {
		t.Errorf("one that has gone out: status %d", st[0])
	}
	w.run()

	w.net.Faults.Unreachable = 1e6
	w.es[0].peers.all[0].c.Reset(w.net.Now(), errAdmin)
	w.wait(1_000_000_000)
	write(2)
	gone, other := write(3), write(4)
	plain := a.submit(shm.Sub{Len: 4})
	withdraw(a.sock+1, other) // of no socket
	withdraw(a.sock, gone)
	withdraw(a.sock, gone)
	withdraw(a.sock, sent)
	w.wait(1_000_000_000)
	withdraw(a.sock, gone) // has ended
	w.wait(1_000_000_000)
	ok, dropped := int(abi.StatusSuccess), int(abi.StatusDropped)
	if st := a.statuses(); !slices.Equal(st, []int{ok, -1, dropped, -1}) {
		t.Errorf("withdrawn: statuses %v", st)
	}
	w.net.Faults.Unreachable = 0
	w.wait(3_000_000_000)
	if st := a.statuses(); !slices.Equal(st, []int{ok, ok, dropped, ok}) || a.hwm() != 4 || a.cl.msgs[plain] != nil {
		t.Errorf("reached again: statuses %v, HWM %d", st, a.hwm())
	}
	if b.look(); len(b.msgs) != 5 || b.mem[8] != 1 || b.mem[16] != 2 || b.mem[24] != 0 || b.mem[32] != 4 {
		t.Errorf("%d messages, memory %v", len(b.msgs), b.mem[:64])
	}
	w.clean2(a, b)
	withdraw(a.sock, ^uint32(0))
	w.run()
	if !a.cl.dead {
		t.Error("a message id that is out of range is taken")
	}
}
