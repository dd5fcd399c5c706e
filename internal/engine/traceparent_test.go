package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
)

// parent is the trace that messages of tests belong to.
var parent = wire.Traceparent{1: 0xa, 17: 0xb, 25: 1}

// traced submits a message with a traceparent behind its payload.
func (s *opSide) traced(sub shm.Sub, ops ...shm.SubOp) uint32 {
	s.w.t.Helper()
	at := int(sub.Chunk) * shm.Unit
	if sub.Flags&shm.SubFromBuf == 0 {
		at += int(sub.Len)
	}
	copy(s.send[at:], parent[:])
	sub.Flags |= shm.SubTraceparent
	return s.submit(sub, ops...)
}

// belongs checks of each message that came whether it has the traceparent, and how long it is.
func (s *opSide) belongs(want ...tracedLen) {
	s.w.t.Helper()
	s.look()
	var got []tracedLen
	for _, ev := range s.msgs {
		l := tracedLen{n: int(ev.Len), traced: ev.Flags&shm.EventTraceparent != 0}
		if l.traced && wire.Traceparent(s.cl.recv.Bytes(ev.Chunk, l.n+wire.TraceparentLen)[l.n:]) != parent {
			s.w.t.Errorf("%d bytes with another traceparent", l.n)
		}
		got = append(got, l)
		s.gaveBack(ev.RxID)
	}
	s.msgs = nil
	if len(got) != len(want) {
		s.w.t.Fatalf("%v came, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.w.t.Errorf("message %d: %v, want %v", i, got[i], want[i])
		}
	}
}

type tracedLen struct {
	n      int
	traced bool
}

// TestTraceparent: a message takes its traceparent to its socket, on this host and another one:
// small, empty, in fragments, from a buffer, with operations. The longest arrives without.
func TestTraceparent(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w, a, b := opPair(t, hosts)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 4 << 20})
		r := b.expose(0, 64, abi.RightWrite|abi.RightAtomic, a)
		w.run()
		a.traced(shm.Sub{Len: 10})
		a.submit(shm.Sub{Len: 20})
		a.traced(shm.Sub{Chunk: 4})
		a.traced(shm.Sub{Len: 40_000, Flags: shm.SubFromBuf, Buf: a.buf, Chunk: 8})
		a.traced(shm.Sub{Len: 30, Chunk: 12}, a.op(abi.OpWrite, r.Cookie, 0))
		a.traced(shm.Sub{Chunk: 2}, a.op(abi.OpWrite, r.Cookie, 0), a.args(a.op(abi.OpFetchAdd, r.Cookie, 8), shm.AtomicEntry{CompareAdd: 1}))
		a.traced(shm.Sub{Len: 200_000, Chunk: 64})
		w.run()
		b.belongs(tracedLen{10, true}, tracedLen{20, false}, tracedLen{0, true}, tracedLen{40_000, true}, tracedLen{30, true}, tracedLen{0, true},
			tracedLen{200_000, true})
		a.traced(shm.Sub{Len: abi.MaxMessage - wire.TraceparentLen})
		w.run()
		b.belongs(tracedLen{abi.MaxMessage - wire.TraceparentLen, true})
		a.traced(shm.Sub{Len: abi.MaxMessage - wire.TraceparentLen + 1})
		w.run()
		b.belongs(tracedLen{abi.MaxMessage - wire.TraceparentLen + 1, false})
		silent := a.op(abi.OpWrite, r.Cookie, 0)
		silent.Flags |= abi.FlagSilent
		a.traced(shm.Sub{}, silent)
		a.traced(shm.Sub{Len: 1})
		clear(a.send[1:][:wire.TraceparentLen]) // none: a process writes what it likes
		w.run()
		b.belongs(tracedLen{1, false})
		w.clean2(a, b)
	}
}

// TestTraceparentWaits: a message keeps its traceparent while it waits at a socket that nobody
// reads, in daemon memory and refused, and one that is withdrawn leaves nothing.
func TestTraceparentWaits(t *testing.T) {
	for _, hosts := range []int{2, 1} {
		w := newWorld(t, hosts, Config{HardCap: 1})
		a, b := w.opSide(0, 10), w.opSide(hosts-1, 20)
		a.open(a.sock, 0, 0, b.e.addrs.all[0].addr, b.port)
		b.must(&ipc.SetRcvBuf{Sock: b.sock, Bytes: 4000})
		w.run()
		for b.cl.ev.Free() > 0 {
			*b.cl.ev.Reserve() = shm.Entry{}
		}
		b.cl.ev.Publish()
		a.traced(shm.Sub{Len: 1000})
		a.traced(shm.Sub{Len: 2000})
		a.traced(shm.Sub{Len: 3000})
		w.run()
		if n := b.cl.socks[b.sock].over.N; n == 0 || n == 3 {
			t.Fatalf("%d in overflow", n)
		}
		b.look()
		b.at.RingDaemon()
		w.run()
		b.look()
		for range 10 { // what is read makes room
			w.run()
			b.look()
			for i := range b.msgs {
				if b.msgs[i].RxID != ^uint32(0) {
					b.gaveBack(b.msgs[i].RxID)
					b.msgs[i].RxID = ^uint32(0)
				}
			}
			b.at.RingDaemon()
		}
		if len(b.msgs) != 3 {
			t.Fatalf("%d messages", len(b.msgs))
		}
		for _, ev := range b.msgs {
			if ev.Flags&shm.EventTraceparent == 0 {
				t.Errorf("%d bytes without", ev.Len)
			}
		}
		a.open(a.sock, 1, 1, nobody(1), 20)
		a.traced(shm.Sub{Slot: 1, Len: 4, GiveUp: 10})
		a.traced(shm.Sub{Slot: 1, Len: 4})
		w.run()
		a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: a.sock, Slot: 1} })
		w.run()
		w.clean2(a, b)
	}
}

// TestTraceparentOlder: a daemon takes over a state with traceparents: of a message that waits for
// another host, of messages that wait in daemon memory and of one that came in fragments and waits
// in the receive arena. An older one delivers them without, and nothing more than their payload.
func TestTraceparentOlder(t *testing.T) {
	for version := uint16(5); version <= handover.Newest; version++ {
		w := newWorld(t, 2, Config{})
		c, b := w.opSide(1, 10), w.opSide(0, 20)
		a := w.opSide(0, 10)
		addr := hostAddr(0)
		for _, s := range []*opSide{a, c} {
			s.open(s.sock, 0, 0, addr, b.port)
		}
		a.open(a.sock, 1, 1, nobody(1), 10)
		w.run()
		for b.cl.ev.Free() > 0 {
			*b.cl.ev.Reserve() = shm.Entry{}
		}
		b.cl.ev.Publish()
		c.traced(shm.Sub{Len: 64 << 10}) // another size with the traceparent
		w.run()
		if s := b.cl.socks[b.sock]; s.over.N != 1 || s.over.Head.Of.inOver {
			t.Fatalf("%d wait", s.over.N)
		}
		a.traced(shm.Sub{Len: 100})
		waits := a.traced(shm.Sub{Len: 50, Slot: 1})
		w.run()
		w.still(0)
		e := w.es[0]
		h := &handedOver{world: w, all: []*opSide{a, b}, version: version}
		heirs, state := h.stateOf(e)
		e = h.next()
		if err := heirs.Adopt(e, state); err != nil {
			t.Fatal(err)
		}
		w.es[0] = e
		for _, s := range h.all {
			s.e, s.cl = e, s.at.cl
		}
		e.Resume()
		b.look()
		b.at.RingDaemon()
		for range 20 {
			w.wait(100 * ms)
		}
		traced := version >= 6
		b.belongs(tracedLen{64 << 10, traced}, tracedLen{100, traced})
		if p := a.cl.msgs[waits].m.Traceparent; traced != (p != nil) || traced && *p != parent {
			t.Errorf("version %d: the message that waits has %v", version, p)
		}
		w.clean(a.raw, b.raw, c.raw)
	}
}

// TestTraceparentOlderFull: a daemon that knows no traceparents is not handed more messages than it has memory for, and this one goes on.
func TestTraceparentOlderFull(t *testing.T) {
	for version := uint16(5); version <= handover.Newest; version++ {
		tracedOlderFull(t, version, 100_000, 1, 2) // bytes
		tracedOlderFull(t, version, 1<<20, 3, 1)   // windows
	}
}

// tracedOlderFull hands over a host that has each messages for users with so much memory for them.
func tracedOlderFull(t *testing.T, version uint16, memory, users, each int) {
	w := newWorld(t, 2, Config{OverflowBytes: memory})
	c := w.opSide(1, 10)
	var bs []*opSide
	var at []*InProcess
	for i := range users {
		b := w.opSideAs(0, uint16(20+i), uint32(1+i))
		bs, at = append(bs, b), append(at, b.at)
		c.open(c.sock, uint32(i), 0, hostAddr(0), b.port)
		w.run()
		for b.cl.ev.Free() > 0 {
			*b.cl.ev.Reserve() = shm.Entry{}
		}
		b.cl.ev.Publish()
		for range each {
			c.traced(shm.Sub{Len: 60_000, Slot: uint32(i)})
		}
	}
	w.run()
	w.still(0)
	s := handover.Write(version)
	err := w.es[0].Encode(s, NewInProcessHeirs(at).Number)
	if errors.Is(err, ErrTraced) != (version < 6) {
		t.Errorf("version %d, %d users: %v", version, users, err)
	}
	w.es[0].Resume()
	for _, b := range bs {
		b.look()
		b.at.RingDaemon()
	}
	w.run()
	raws := []*raw{c.raw}
	for _, b := range bs {
		b.belongs(slices.Repeat([]tracedLen{{60_000, true}}, each)...)
		raws = append(raws, b.raw)
	}
	w.clean(raws...)
}
