package engine

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// ask submits a message whose status is wanted, and returns its id.
func (s *opSide) ask(sub shm.Sub) uint32 {
	s.w.t.Helper()
	sub.Flags |= shm.SubNotify
	return s.submit(sub)
}

// outcomes returns what messages ended with, in the order of their ids.
func (s *opSide) outcomes() (all []outcomeOf) {
	s.look()
	for _, st := range s.told {
		if st.OpID == 0 {
			all = append(all, outcomeOf{uint32(st.Token), st.Status, unix.Errno(st.Errno)})
		}
	}
	slices.SortFunc(all, func(a, b outcomeOf) int { return cmp.Compare(a.id, b.id) })
	return all
}

type outcomeOf struct {
	id     uint32
	status abi.Status
	errno  unix.Errno
}

// isOutcome checks what messages have ended with, that each was told once, and how many notices
// of a kind there were.
func (s *opSide) isOutcome(notice uint8, n uint64, want ...outcomeOf) {
	s.w.t.Helper()
	if got := s.outcomes(); !slices.Equal(got, want) {
		s.w.t.Errorf("outcomes %v, want %v", got, want)
	}
	told := uint64(0)
	for _, e := range s.notes {
		if e.Notice == notice {
			told += e.Count
		}
	}
	if told != n {
		s.w.t.Errorf("%d messages in notices of kind %d, want %d", told, notice, n)
	}
}

// TestOutcome: a message that asks is told that it was acked, or that it found no socket; one that
// does not ask is not told. So it is on one host and on two.
func TestOutcome(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		addr := b.e.addrs.all[0].addr
		a.open(a.sock, 1, 0, addr, 99) // nobody
		a.open(a.sock, 2, 0, addr, 0)  // a ping
		plain := a.ask(shm.Sub{Len: 4})
		a.submit(shm.Sub{Len: 5})
		empty := a.ask(shm.Sub{})
		nobody := a.ask(shm.Sub{Slot: 1, Len: 6})
		ping := a.ask(shm.Sub{Slot: 2})
		other := a.ask(shm.Sub{Len: 7, DstInc: 0x7777})
		w.run()
		a.isOutcome(shm.NoticeNoSocket, 2, outcomeOf{plain, abi.StatusSuccess, 0}, outcomeOf{empty, abi.StatusSuccess, 0},
			outcomeOf{nobody, abi.StatusDropped, unix.ECONNREFUSED}, outcomeOf{ping, abi.StatusSuccess, 0},
			outcomeOf{other, abi.StatusDropped, unix.ECONNREFUSED})
		if b.look(); len(b.msgs) != 3 || len(a.back) != 6 {
			t.Errorf("%d hosts: %d messages, %d ids", hosts, len(b.msgs), len(a.back))
		}
		w.clean2(a, b)
	}
}

// TestOutcomeWithdrawn: messages that nobody answers end CANCELED and DROPPED, and those of a
// closed socket are not told.
func TestOutcomeWithdrawn(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a := w.opSide(0, 10)
	e := w.es[0]
	a.open(a.sock, 0, 0, nobody(1), 20)
	a.open(a.sock, 1, 1, nobody(2), 20)
	other := a.bind(11)
	a.open(other, 2, 2, nobody(1), 20)
	w.pass(ms, e)
	limited := a.ask(shm.Sub{Len: 4, GiveUp: 20})
	cancelled := a.ask(shm.Sub{Slot: 1, Len: 4})
	closed := shm.Sub{Kind: shm.KindSend, Flags: shm.SubNotify, Sock: other, Slot: 2, MsgID: 100, Len: 4}
	a.put(func(e *shm.Entry) { *e.Sub() = closed })
	w.pass(ms, e)
	a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 1} })
	a.must(&ipc.CloseSock{Sock: other})
	w.pass(30*ms, e)
	a.isOutcome(shm.NoticeGaveUp, 0, outcomeOf{limited, abi.StatusDropped, 0}, outcomeOf{cancelled, abi.StatusCanceled, 0})
	if slices.Sort(a.back); !slices.Equal(a.back, []uint32{limited, cancelled, 100}) {
		t.Errorf("ids %v are back", a.back)
	}
	w.clean(a.raw)
}

// TestOutcomeUnknown: a message that went out may have been delivered when its limit passes, or
// when the peer's daemon restarts.
func TestOutcomeUnknown(t *testing.T) {
	w, a, b := opPair(t, 2)
	a.submit(shm.Sub{Len: 4}) // meets the socket
	w.run()
	limited := a.ask(shm.Sub{Len: 4, GiveUp: 20})
	w.pass(22*ms, w.es[0]) // the peer's daemon stands still
	a.isOutcome(shm.NoticeGaveUp, 0, outcomeOf{limited, abi.StatusUnknown, 0})
	w.run()
	lost := a.ask(shm.Sub{Len: 4})
	w.pass(ms, w.es[0])
	if err := w.net.Device(hostAddr(1)).Close(); err != nil {
		t.Fatal(err)
	}
	w.es[1] = w.boot(1, 99, Config{})
	for range 20 {
		w.wait(100 * ms)
	}
	a.isOutcome(shm.NoticeLost, 1, outcomeOf{limited, abi.StatusUnknown, 0}, outcomeOf{lost, abi.StatusUnknown, 0})
	if b.look(); len(b.msgs) != 2 {
		t.Errorf("%d messages", len(b.msgs))
	}
	w.clean(a.raw)
}

// TestOutcomeFirst: the event ring is full. The id of a message, and the mark, come back behind the
// status of the message, and the status comes when there is room.
func TestOutcomeFirst(t *testing.T) {
	w, a, b := opPair(t, 1)
	r := b.expose(0, 64, abi.RightWrite, a)
	w.run()
	for a.cl.ev.Free() > 0 {
		*a.cl.ev.Reserve() = shm.Entry{}
	}
	a.cl.ev.Publish()
	id := a.ask(shm.Sub{Len: 4})
	a.submit(shm.Sub{Len: 4}, a.op(abi.OpWrite, r.Cookie, 0))
	w.run()
	if n := a.seg.SendRetConsumer(); !n.Empty() || a.hwm() != 0 || a.cl.pendOps.N != 2 {
		t.Errorf("an id is back, or the mark is %d; %d statuses wait", a.hwm(), a.cl.pendOps.N)
	}
	a.look()
	a.at.RingDaemon()
	w.run()
	a.isOutcome(shm.NoticeLost, 0, outcomeOf{id, abi.StatusSuccess, 0})
	if st := a.told; len(st) != 2 || st[0].OpID != 0 || a.hwm() != 1 || len(a.back) != 2 {
		t.Errorf("told %+v, mark %d, ids %v", st, a.hwm(), a.back)
	}
	w.clean2(a, b)
}

// TestOutcomeRefused: a cookie that cannot be granted is a REMOTE_ERROR of its message, with the
// reason, and no notice.
func TestOutcomeRefused(t *testing.T) {
	w, a, b := opPair(t, 2)
	once := a.must(&ipc.Register{Sock: a.sock, Buffer: a.buf, Len: 64, Access: abi.RightRead | abi.UseOnce}).(*ipc.RegisterOK)
	a.must(&ipc.Expose{Region: once.Region, Addr: hostAddr(0), Port: 9}) // so no other host may have it
	w.run()
	id := a.ask(shm.Sub{Len: 4, Cookie: once.Cookie})
	w.run()
	a.isOutcome(shm.NoticeNotGranted, 0, outcomeOf{id, abi.StatusRemoteError, unix.EBUSY})
	w.clean2(a, b)
}

// TestOutcomeOlder: an older daemon takes over a state with messages that ask. It tells the status
// that waits for room. The message that is not done comes back without one.
func TestOutcomeOlder(t *testing.T) {
	for version := uint16(4); version <= 5; version++ {
		w, a, b := opPair(t, 1)
		a.open(a.sock, 1, 0, hostAddr(0), 99) // nobody
		a.open(a.sock, 2, 1, nobody(1), 20)
		w.run()
		for a.cl.ev.Free() > 0 {
			*a.cl.ev.Reserve() = shm.Entry{}
		}
		a.cl.ev.Publish()
		good, none := a.ask(shm.Sub{Len: 4}), a.ask(shm.Sub{Slot: 1, Len: 4})
		waits := a.ask(shm.Sub{Slot: 2, Len: 4})
		w.run()
		h := &handedOver{world: w, all: []*opSide{a, b}, version: version}
		w.still(0)
		heirs, state := h.stateOf(w.es[0])
		e := h.next()
		if err := heirs.Adopt(e, state); err != nil {
			t.Fatal(err)
		}
		w.es[0] = e
		for _, s := range h.all {
			s.e, s.cl = e, s.at.cl
		}
		e.Resume()
		a.look()
		a.at.RingDaemon()
		w.run()
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 2} })
		w.run()
		want := []outcomeOf{{good, abi.StatusSuccess, 0}, {none, abi.StatusDropped, 0}}
		if version == 5 {
			want[1].errno = unix.ECONNREFUSED
			want = append(want, outcomeOf{waits, abi.StatusCanceled, 0})
		}
		a.isOutcome(shm.NoticeNoSocket, 1, want...)
		if len(a.back) != 3 {
			t.Errorf("version %d: ids %v are back", version, a.back)
		}
		w.clean2(a, b)
	}
}

// TestOutcomeOf: what each end of a message is told as.
func TestOutcomeOf(t *testing.T) {
	w, a, _ := opPair(t, 1)
	w.run()
	var want []outcomeOf
	for i, c := range []struct {
		o      msg.Outcome
		status abi.Status
		errno  unix.Errno
	}{
		{msg.Acked, abi.StatusSuccess, 0}, {msg.Cancelled, abi.StatusCanceled, 0}, {msg.NoSock, abi.StatusDropped, unix.ECONNREFUSED},
		{msg.Lost, abi.StatusUnknown, 0}, {msg.Unknown, abi.StatusUnknown, 0}, {msg.Dropped, abi.StatusDropped, 0},
		{msg.OpRefused, abi.StatusRemoteError, unix.ENOBUFS}, {msg.Withdrawn, abi.StatusDropped, 0}, {msg.GaveUp, abi.StatusUnknown, 0},
	} {
		m := a.e.pools.msgs.Get()
		a.cl.refs++
		m.sock, m.slot, m.id, m.notify, m.errno = a.cl.sock(a.sock), a.cl.slots[0], uint32(i), true, unix.ENOBUFS
		a.e.tx.outcome(m, c.o)
		a.e.tx.freeMsg(m)
		want = append(want, outcomeOf{uint32(i), c.status, c.errno})
	}
	a.cl.ev.Publish()
	a.isOutcome(shm.NoticeLost, 0, want...)
}

// TestOutcomeStateRefused: no state has a message with operations that asks for a status of its own.
func TestOutcomeStateRefused(t *testing.T) {
	for _, asks := range []bool{false, true} {
		w, a, b := opPair(t, 2)
		r := b.expose(0, 64, abi.RightWrite, a)
		w.run()
		w.net.Faults.Unreachable = 1e6
		ResetPeers(a.e, hostAddr(1), nil, nil)
		w.pass(5*ms, w.es...)
		id := a.submit(shm.Sub{Len: 4}, a.op(abi.OpWrite, r.Cookie, 0))
		w.pass(5*ms, w.es...)
		w.still(0)
		a.cl.msgs[id].notify = asks
		h := &handedOver{world: w, all: []*opSide{a}}
		heirs, state := h.stateOf(a.e)
		if err := heirs.Adopt(h.next(), state); errors.Is(err, handover.ErrFormat) != asks {
			t.Errorf("asks %v: %v", asks, err)
		}
	}
}
