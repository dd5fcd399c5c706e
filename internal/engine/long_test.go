package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs/sim"
	"golang.org/x/sys/unix"
)

// longLen is the length of an operation of four pieces, of which the last is short.
const longLen = 3*abi.MaxRDMA + 1000

// longRun is a long operation from a to memory of b, with a message.
type longRun struct {
	*testing.T
	w     *world
	a, b  *opSide
	other *opSide // another one on a's host, see TestLongIsTheUse
	r     *ipc.RegisterOK
	op    shm.SubOp
}

// newLong exposes b's memory, which differs from a's in every byte.
func newLong(t *testing.T, hosts int, kind abi.OpKind, rights abi.Rights) *longRun {
	t.Helper()
	w, a, b := opPair(t, hosts)
	x := &longRun{T: t, w: w, a: a, b: b}
	for _, s := range []*opSide{a, b} {
		s.buf = s.must(&ipc.Alloc{Size: longLen + 64}).(*ipc.AllocOK).Buffer
		s.mem = s.cl.buffers[s.buf].mem
	}
	for i := range a.mem {
		a.mem[i] = byte(i*7 + i>>13)
		b.mem[i] = ^a.mem[i]
	}
	x.r = b.expose(0, longLen, rights|abi.RightRead|abi.RightWrite|abi.RightAtomic, a)
	x.op = a.op(kind, x.r.Cookie, 0)
	x.op.Len = longLen
	a.submit(shm.Sub{Len: 1})
	w.run()
	return x
}

// moved reports whether all of the memory was.
func (x *longRun) moved() bool { return bytes.Equal(x.a.mem[:longLen], x.b.mem[:longLen]) }

// lens are the lengths of the messages that b got.
func (x *longRun) lens() (out []uint32) {
	x.b.look()
	for _, m := range x.b.msgs {
		out = append(out, m.Len)
	}
	return out
}

// TestLongOperation: an operation of several pieces is one: the message is behind the last
// piece, with one status. Its segments need not fit the pieces.
func TestLongOperation(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
			x := newLong(t, hosts, kind, 0)
			a := x.a
			op := x.op
			op.NSeg, op.SegChunk = 0, 32
			for at := uint64(0); at < longLen; op.NSeg++ {
				n := min(longLen-at, 700_000)
				shm.PutSegEntry(a.send[32*shm.Unit+int(op.NSeg)*shm.SegEntrySize:], shm.SegEntry{Region: a.buf, Off: at, Len: n})
				at += n
			}
			add := a.op(abi.OpFetchAdd, x.r.Cookie, longLen-longLen%8-8)
			add.Off = longLen + 8 - longLen%8
			a.submit(shm.Sub{Len: 2}, op)
			a.submit(shm.Sub{Len: 3}, x.op, a.args(add, shm.AtomicEntry{}))
			a.submit(shm.Sub{Len: 4})
			x.w.run()
			if st := a.statuses(); fmt.Sprint(st) != "[0 0 0]" || a.hwm() != 3 || len(a.back) != 4 {
				t.Errorf("%d hosts, %v: statuses %v, HWM %d, %d ids back", hosts, kind, st, a.hwm(), len(a.back))
			}
			if got := x.lens(); fmt.Sprint(got) != "[1 2 3 4]" || !x.moved() {
				t.Errorf("%d hosts, %v: messages %v, moved %v", hosts, kind, got, x.moved())
			}
			x.w.clean2(a, x.b)
		}
	}
}

// TestLongExact breaks the connection once, at every point of every piece: the status is the
// truth, and the messages around it arrive once and in order.
func TestLongExact(t *testing.T) {
	oneGoroutine(t)
	points := []sim.PointKind{sim.BeforeWrite, sim.AfterWritePlaced, sim.BeforeReadSampled, sim.AfterReadSampled,
		sim.BeforeSendDelivered, sim.AfterSendDelivered, sim.BeforeCompletion}
	saw := map[string]int{}
	for _, kind := range []abi.OpKind{abi.OpWrite, abi.OpRead} {
		for _, point := range points {
			for action := sim.Break; action <= sim.HalfOpen; action++ {
				for skip, hit := 0, true; hit && skip < 40; skip++ {
					name := fmt.Sprintf("%v/point %d/action %d/passage %d", kind, point, action, skip)
					var status int
					if hit, status = longExact(t, name, kind, point, action, skip); hit {
						saw[fmt.Sprint(kind, status)]++
					}
				}
			}
		}
		for _, s := range []int{int(abi.StatusSuccess), int(abi.StatusDropped)} {
			if saw[fmt.Sprint(kind, s)] == 0 {
				t.Errorf("no %v that was broken ended with status %d", kind, s)
			}
		}
	}
}

func longExact(t *testing.T, name string, kind abi.OpKind, point sim.PointKind, action sim.Action, skip int) (hit bool, status int) {
	x := newLong(t, 2, kind, 0)
	x.w.net.Hook = func(p sim.Point) sim.Action {
		if p.Kind != point || hit {
			return sim.Pass
		}
		if skip--; skip >= 0 {
			return sim.Pass
		}
		hit = true
		return action
	}
	x.a.submit(shm.Sub{Len: 2})
	x.a.submit(shm.Sub{Len: 3}, x.op)
	x.a.submit(shm.Sub{Len: 4})
	for range 5 {
		x.w.run()
	}
	status = x.a.statuses()[0]
	want, truth := "[1 2 4]", status == int(abi.StatusDropped)
	if status == int(abi.StatusSuccess) {
		want, truth = "[1 2 3 4]", x.moved()
	}
	if got := x.lens(); fmt.Sprint(got) != want || !truth {
		t.Errorf("%s: status %d, messages %v, moved %v", name, status, got, x.moved())
	}
	if x.a.hwm() != 1 || len(x.a.told) != 1 || len(x.a.back) != 4 {
		t.Errorf("%s: HWM %d, %d statuses, %d ids back", name, x.a.hwm(), len(x.a.told), len(x.a.back))
	}
	x.w.net.Hook = nil
	x.w.clean2(x.a, x.b)
	return hit, status
}

// TestLongAmid does something to the operation or to its peer at every point of its life.
func TestLongAmid(t *testing.T) {
	oneGoroutine(t)
	type statuses map[abi.Status]bool
	for name, c := range map[string]struct {
		do   func(x *longRun)
		may  statuses // besides SUCCESS
		sees []abi.Status
	}{
		"cancelled": {func(x *longRun) {
			x.a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: x.a.sock} })
		}, statuses{abi.StatusCanceled: true}, []abi.Status{abi.StatusCanceled, abi.StatusSuccess}},
		"released": {func(x *longRun) {
			x.b.e.keys.releaseRegion(x.b.e.keys.by[x.r.Region])
		}, statuses{abi.StatusRemoteError: true, abi.StatusDropped: true}, []abi.Status{abi.StatusRemoteError, abi.StatusSuccess}},
		"reset": {(*longRun).reset, statuses{abi.StatusDropped: true}, []abi.Status{abi.StatusDropped, abi.StatusSuccess}},
		"time is up": {func(x *longRun) {
			for _, m := range x.a.cl.msgs {
				if m != nil && m.nops > 0 {
					m.slot.way.end(m, msg.Withdrawn)
				}
			}
		}, statuses{abi.StatusDropped: true, abi.StatusUnknown: true}, []abi.Status{abi.StatusDropped, abi.StatusSuccess}},
		"the peer restarts": {(*longRun).restart, statuses{abi.StatusDropped: true, abi.StatusUnknown: true, abi.StatusRemoteError: true},
			[]abi.Status{abi.StatusUnknown, abi.StatusSuccess}},
		"reset, and the peer restarts": {func(x *longRun) {
			x.reset()
			x.restart()
		}, statuses{abi.StatusDropped: true, abi.StatusUnknown: true, abi.StatusRemoteError: true}, []abi.Status{abi.StatusDropped, abi.StatusUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			saw := statuses{}
			for turns := 0; ; turns++ {
				x := newLong(t, 2, abi.OpWrite, 0)
				st, over := x.amid(turns, c.do)
				if st != abi.StatusSuccess && !c.may[st] {
					t.Errorf("after %d turns: status %d", turns, st)
				}
				saw[st] = true
				if over {
					break
				}
			}
			for _, s := range c.sees {
				if !saw[s] {
					t.Errorf("no operation ended with status %d", s)
				}
			}
		})
	}
}

func (x *longRun) reset() {
	p := x.a.e.peers.all[0]
	p.c.Reset(x.w.net.Now(), errAdmin)
	x.a.e.dirty.touch(p)
}

func (x *longRun) restart() {
	x.b.at.Close()
	x.w.net.Crash(hostAddr(1))
	x.w.es[1] = x.w.boot(1, 77, Config{})
}

// amid sends an operation and has do done after so many turns. over: it had ended before.
func (x *longRun) amid(turns int, do func(*longRun)) (st abi.Status, over bool) {
	a, b, w := x.a, x.b, x.w
	a.submit(shm.Sub{Len: 2}, x.op)
	for range turns {
		w.turnAll()
		w.net.Step()
	}
	a.look()
	over = len(a.told) > 0
	do(x)
	for range 10 {
		w.run()
	}
	delivered := false
	for _, n := range x.lens() {
		delivered = delivered || n == 2
	}
	a.look()
	if len(a.told) != 1 || a.hwm() != 1 || len(a.back) != 2 {
		x.Fatalf("after %d turns: %d statuses, HWM %d, %d ids back", turns, len(a.told), a.hwm(), len(a.back))
	}
	st = a.told[0].Status
	switch {
	case st == abi.StatusSuccess && !x.moved():
		x.Errorf("after %d turns: success, and not all is there", turns)
	case st == abi.StatusSuccess && !delivered && w.es[1] == b.e, st == abi.StatusDropped && delivered, delivered && !x.moved():
		x.Errorf("after %d turns: status %d, delivered %v, moved %v", turns, st, delivered, x.moved())
	}
	if w.es[1] != b.e { // a meets the new instance, if it has not
		a.submit(shm.Sub{Len: 1})
		w.run()
	}
	w.clean2(a, b)
	return st, over
}

// TestLongUseOnce: the last piece is the use of a key for one use.
func TestLongUseOnce(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		x := newLong(t, hosts, abi.OpWrite, abi.UseOnce)
		x.a.submit(shm.Sub{Len: 2}, x.op)
		x.a.submit(shm.Sub{Len: 3}, x.op)
		x.w.run()
		remote := int(abi.StatusRemoteError)
		if st := x.a.statuses(); st[0] != 0 || st[1] != remote || !x.moved() {
			t.Errorf("%d hosts: statuses %v, moved %v", hosts, st, x.moved())
		}
		for _, told := range x.a.told {
			if told.OpID == 2 && told.Errno != uint32(unix.EINVAL) {
				t.Errorf("%d hosts: the second use: %+v", hosts, told)
			}
		}
		if err := x.b.release(x.r.Region); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%d hosts: Release: %v", hosts, err)
		}
		x.w.clean2(x.a, x.b)
	}
}

// TestLongTakesTurns: another socket's operation waits for a piece, not for all of them.
func TestLongTakesTurns(t *testing.T) {
	x := newLong(t, 2, abi.OpWrite, 0)
	other := x.w.opSide(0, 11)
	other.open(other.sock, 0, 0, x.b.e.addrs.all[0].addr, x.b.port)
	r := x.b.expose(longLen, 8, abi.RightWrite, other)
	other.submit(shm.Sub{Len: 5})
	x.w.run()
	x.a.submit(shm.Sub{Len: 2}, x.op)
	x.a.e.Turn(x.w.net.Now(), Wall(x.w.net.Now()))
	other.submit(shm.Sub{Len: 3}, other.op(abi.OpWrite, r.Cookie, 0))
	x.w.run()
	if got := x.lens(); fmt.Sprint(got) != "[1 5 3 2]" {
		t.Errorf("messages %v", got)
	}
	x.w.clean(x.a.raw, x.b.raw, other.raw)
}
