package conn

import (
	"bytes"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// TestCarried: an atomic makes no work request but its message's SEND. It succeeds with its
// result and the ack.
func TestCarried(t *testing.T) {
	a := newAtomicScript(t)
	a.up(serves)
	m := a.add()
	if len(a.raw) != 1 {
		t.Fatalf("%d SENDs", len(a.raw))
	}
	var r wire.Atomic
	if err := wire.ParseAtomic(a.raw[0][wire.HeaderLen:], &r); err != nil {
		t.Fatal(err)
	}
	if want := (wire.Atomic{RKey: a.key, Addr: 16, Kind: wire.AtomicFetchAdd, CompareAdd: 3}); r != want {
		t.Errorf("request %+v, want %+v", r, want)
	}
	f := a.frames()[0]
	if f.Flags&(wire.FlagAtomic|wire.FlagAckRequired) != wire.FlagAtomic|wire.FlagAckRequired || f.Seq != 100 || string(f.body) != "op" || f.Exts().RDMAKeys[0] != a.key {
		t.Errorf("frame %+v", f)
	}
	if a.local[m] || !m.Carried() || bytes.ContainsFunc(a.mem[:64], func(r rune) bool { return r != 0 }) && a.c.sq.reads != 0 {
		t.Error("locally complete, or run by the device")
	}
	a.open(m)
	a.send(a.result(100, wire.AtomicDone, 5))
	a.open(m)
	if old, ok := a.results[m]; !ok || old != 5 {
		t.Errorf("result %d, %v", old, ok)
	}
	a.send(frame(wire.Header{Ack: 100}, nil))
	a.want(m, msg.Acked)
	if !a.local[m] {
		t.Error("ended, and not locally complete")
	}
}

// TestCarriedSentAgain: after a break an atomic that the peer has not received is sent again
// like a datagram. One that the peer has received waits for its result, which HELLO announces.
func TestCarriedSentAgain(t *testing.T) {
	a := newAtomicScript(t)
	a.up(serves)
	first, second := a.add(), a.add()
	a.again(received(100), func(h *wire.Hello) { h.Notice = a.seq + 1 })
	f := a.frames()
	if len(f) != 1 || f[0].Seq != 101 || f[0].Flags&(wire.FlagAtomic|wire.FlagRetransmitted) != wire.FlagAtomic|wire.FlagRetransmitted || string(f[0].body) != "op" {
		t.Fatalf("sent again: %+v", f)
	}
	a.open(first, second)
	a.send(a.result(100, wire.AtomicDone, 5))
	a.want(first, msg.Acked)
	a.send(a.result(101, wire.AtomicDone, 8), frame(wire.Header{Ack: 101, Seq: a.next(), SPort: 1, DPort: 9}, nil))
	a.want(second, msg.Acked)
	if a.results[first] != 5 || a.results[second] != 8 {
		t.Errorf("results %v", a.results)
	}
}

func (a *atomicScript) next() uint64 { a.seq++; return a.seq }

// TestCarriedEnds: whatever becomes of an atomic's message, its outcome is exact.
func TestCarriedEnds(t *testing.T) {
	begin := func(t *testing.T) (*atomicScript, *msg.Msg) {
		a := newAtomicScript(t)
		a.up(serves)
		m := a.add()
		a.frames()
		return a, m
	}
	t.Run("refused by the target", func(t *testing.T) {
		for st, wc := range map[wire.AtomicStatus]verbs.WCStatus{wire.AtomicAccess: verbs.WCRemAccessErr, wire.AtomicAlign: verbs.WCRemInvReqErr} {
			a, m := begin(t)
			behind := a.msg("behind")
			a.run()
			a.send(a.result(100, st, 0))
			a.want(m, msg.OpFailed)
			if m.WCStatus != wc || m.Bad != m.Op || len(a.results) != 0 {
				t.Errorf("%d: %v of %p, results %v", st, m.WCStatus, m.Bad, a.results)
			}
			a.send(frame(wire.Header{Ack: 101}, nil))
			a.want(behind, msg.Acked)
		}
	})
	t.Run("no socket", func(t *testing.T) {
		a, m := begin(t)
		a.send(a.notice(wire.TypeNoSock, 100, 4))
		a.want(m, msg.NoSock)
	})
	t.Run("refused for room, sent again", func(t *testing.T) {
		a, m := begin(t)
		a.send(a.notice(wire.TypeRefused, 100, 4))
		f := a.frames()
		if len(f) != 1 || f[0].Seq != 101 || f[0].Flags&(wire.FlagAtomic|wire.FlagResume) != wire.FlagAtomic|wire.FlagResume {
			t.Fatalf("%+v", f)
		}
		a.send(a.result(101, wire.AtomicDone, 1), frame(wire.Header{Ack: 101, Seq: a.next(), SPort: 1, DPort: 9}, nil))
		a.want(m, msg.Acked)
	})
	t.Run("refused, and the limit passes", func(t *testing.T) {
		a, m := begin(t)
		a.cong(4)
		a.send(a.notice(wire.TypeRefused, 100, 4))
		if o, _ := a.c.GiveUp(m); o != msg.Withdrawn {
			t.Errorf("%v", o)
		}
	})
	t.Run("the limit passes", func(t *testing.T) {
		a, m := begin(t)
		if o, _ := a.c.GiveUp(m); o != msg.GaveUp {
			t.Errorf("%v", o)
		}
		a.want(m, msg.GaveUp)
		a.send(a.result(100, wire.AtomicDone, 5))
		if len(a.results) != 0 || a.c.State() != Up {
			t.Error("the result of a message that was given up counts")
		}
	})
	t.Run("the peer restarts", func(t *testing.T) {
		a, m := begin(t)
		a.again(serves, func(h *wire.Hello) { h.Instance = 78 })
		a.want(m, msg.Unknown)
	})
	t.Run("refused, and the peer restarts", func(t *testing.T) {
		a, m := begin(t)
		a.cong(4)
		a.send(a.notice(wire.TypeRefused, 100, 4))
		a.again(serves, func(h *wire.Hello) { h.Instance = 78 })
		a.want(m, msg.Dropped)
	})
	t.Run("the peer stays away", func(t *testing.T) {
		a, m := begin(t)
		a.q.toErr(true)
		a.run()
		a.now += 100e9
		a.c.Tick(a.now)
		a.open(m)
	})
	t.Run("the peer comes back without the feature", func(t *testing.T) {
		a, m := begin(t)
		a.again(func(h *wire.Hello) { h.Ack = 99 })
		a.want(m, msg.Dropped)
	})
	t.Run("cancelled", func(t *testing.T) {
		a, m := begin(t)
		if a.c.Cancel(m, msg.Cancelled) {
			t.Error("later")
		}
		a.want(m, msg.Cancelled)
	})
}

// TestCarriedLies: a peer that acks an atomic without its result, answers twice, answers what
// is no atomic, or refuses what it has answered breaks the protocol.
func TestCarriedLies(t *testing.T) {
	for name, lie := range map[string]func(*atomicScript) [][]byte{
		"ack without result": func(a *atomicScript) [][]byte { return [][]byte{frame(wire.Header{Ack: 100}, nil)} },
		"two results": func(a *atomicScript) [][]byte {
			return [][]byte{a.result(100, wire.AtomicDone, 1), a.result(100, wire.AtomicDone, 1)}
		},
		"refused behind its result": func(a *atomicScript) [][]byte {
			return [][]byte{a.result(100, wire.AtomicDone, 1), a.notice(wire.TypeRefused, 100, 4)}
		},
		"of a datagram":        func(a *atomicScript) [][]byte { return [][]byte{a.result(101, wire.AtomicDone, 1)} },
		"of another status":    func(a *atomicScript) [][]byte { return [][]byte{a.result(100, wire.AtomicNobody, 1)} },
		"of what was not sent": func(a *atomicScript) [][]byte { return [][]byte{a.result(102, wire.AtomicDone, 1)} },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAtomicScript(t)
			a.up(serves)
			m := a.add()
			a.msg("datagram")
			a.run()
			a.send(lie(a)...)
			a.wantError(ErrProtocol)
			if o, ended := a.done[m]; ended && o != msg.OpFailed {
				t.Errorf("ended with %v", o)
			}
		})
	}
}

// TestCarriedPlain: a peer that does not offer to carry out atomics gets a work request.
func TestCarriedPlain(t *testing.T) {
	a := newAtomicScript(t)
	a.up()
	m := a.add()
	f := a.frames()
	if len(f) != 1 || f[0].Flags&wire.FlagAtomic != 0 || m.Carried() || !a.local[m] {
		t.Fatalf("%+v, carried %v, local %v", f, m.Carried(), a.local[m])
	}
	a.send(frame(wire.Header{Ack: 100}, nil))
	a.want(m, msg.Acked)
}

// TestCarriedLong: a message in fragments has the request in each of them.
func TestCarriedLong(t *testing.T) {
	a := newAtomicScript(t)
	a.up(serves)
	m := a.op(abi.OpFetchAdd, 8)
	m.Data = bytes.Repeat([]byte("long"), 10000)
	a.c.Send(m)
	a.run()
	var got []byte
	for _, f := range a.frames() {
		if f.Flags&wire.FlagAtomic == 0 {
			t.Fatalf("%+v", f)
		}
		got = append(got, f.body...)
	}
	if !bytes.Equal(got, m.Data) {
		t.Errorf("%d bytes, want %d", len(got), len(m.Data))
	}
	a.send(a.result(100, wire.AtomicDone, 5), frame(wire.Header{Ack: 100, Seq: a.next(), SPort: 1, DPort: 9}, nil))
	a.want(m, msg.Acked)
}

// TestCarriedBehindWrite: the write of a message with two operations is a work request, its
// atomic is not. If the message was not received, neither is sent again.
func TestCarriedBehindWrite(t *testing.T) {
	for _, received := range []bool{true, false} {
		a := newAtomicScript(t)
		a.up(serves)
		m := a.two(abi.OpWrite, rdmaop.AtomicArgs{CompareAdd: 1})
		a.c.Send(m)
		a.run()
		f := a.frames()
		if len(f) != 1 || f[0].Flags&wire.FlagAtomic == 0 || !a.local[m] || a.c.sq.used != 0 {
			t.Fatalf("%+v, local %v", f, a.local[m])
		}
		if !received {
			a.again(serves, func(h *wire.Hello) { h.Ack = 99 })
			a.want(m, msg.Dropped)
			continue
		}
		a.send(a.result(100, wire.AtomicDone, 5), frame(wire.Header{Ack: 100, Seq: a.next(), SPort: 1, DPort: 9}, nil))
		a.want(m, msg.Acked)
	}
}
