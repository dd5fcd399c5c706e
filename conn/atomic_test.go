package conn

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
)

// atomicScript is a script whose Conn carries out atomics, and whose peer may.
type atomicScript struct {
	*script
	word    uint64 // every atomic of the peer adds to it
	ran     int
	aimed   int // and neither ran nor was let go
	status  wire.AtomicStatus
	results map[*msg.Msg]uint64
}

func newAtomicScript(t *testing.T) *atomicScript {
	a := &atomicScript{script: newScript(t, func(c *Config) { c.Attr.Caps |= verbs.CapGlobalAtomics }), word: 5, results: map[*msg.Msg]uint64{}}
	a.c.host = checked(&a.c.calls, a)
	return a
}

func (a *atomicScript) AimAtomic(_ *Conn, h *wire.Header, r *wire.Atomic) wire.AtomicStatus {
	if a.status == wire.AtomicDone {
		a.aimed++
	}
	return a.status
}

func (a *atomicScript) RunAtomic(_ *Conn, r *wire.Atomic, run bool) uint64 {
	a.aimed--
	if !run {
		return 0
	}
	a.ran++
	a.word += r.CompareAdd
	return a.word - r.CompareAdd
}

func (a *atomicScript) AtomicResult(_ *Conn, m *msg.Msg, old uint64) {
	if _, twice := a.results[m]; twice {
		a.t.Error("two results")
	}
	if o, ended := a.done[m]; ended {
		a.t.Errorf("a result of a message that has ended with %v", o)
	}
	a.results[m] = old
}

func serves(h *wire.Hello) { h.Features |= wire.FeatureCarried }

func received(seq uint64) func(*wire.Hello) {
	return func(h *wire.Hello) { serves(h); h.Ack = seq }
}

// add sends an atomic.
func (a *atomicScript) add() *msg.Msg {
	m := a.op(abi.OpFetchAdd, 8)
	m.Op.Atomic = rdmaop.AtomicArgs{CompareAdd: 3}
	m.Op.RemoteOff = 16
	a.c.Send(m)
	a.run()
	return m
}

// result sends ATOMIC_RESULT.
func (a *atomicScript) result(seq uint64, st wire.AtomicStatus, old uint64) []byte {
	a.seq++
	r := wire.Result{Notice: wire.Notice{Seq: seq, DPort: 4, SPort: 3, SrcInc: 5}, Status: st, Old: old}
	return frame(wire.Header{Seq: a.seq, DPort: uint16(wire.TypeResult), Flags: wire.FlagInternal}, r.Append(nil))
}

// request is an atomic of the peer.
func (a *atomicScript) request(payload string, change ...func(*wire.Header)) []byte {
	b := a.data("", append(change, flags(wire.FlagAtomic), func(h *wire.Header) { h.Len = uint32(len(payload)) })...)
	r := wire.Atomic{RKey: 9, Region: 1, Addr: 64, Kind: wire.AtomicFetchAdd, CompareAdd: 2}
	req := make([]byte, wire.AtomicLen)
	r.Put(req)
	return append(append(b, req...), payload...)
}

// told returns the results that the peer got since the last call, and the highest ack.
func (a *atomicScript) told() (out []wire.Result, ack uint64) {
	for _, f := range a.frames() {
		ack = max(ack, f.Ack)
		if f.Flags&wire.FlagInternal == 0 || f.DPort != uint16(wire.TypeResult) {
			continue
		}
		r, err := wire.ParseResult(f.body)
		if err != nil {
			a.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out, ack
}

// TestAtomicServed: an atomic runs when its message is accepted, and its result goes out ahead
// of any ack that covers the message.
func TestAtomicServed(t *testing.T) {
	a := newAtomicScript(t)
	a.up()
	a.send(a.request("hello"))
	rs, ack := a.told()
	want := wire.Result{Notice: wire.Notice{Seq: a.seq, DPort: 9, SPort: 7, SrcInc: 1}, Old: 5}
	if len(rs) != 1 || rs[0] != want || ack != a.seq || a.word != 7 || strings.Join(a.delivered, ",") != "hello" {
		t.Fatalf("%+v, ack %d, word %d, delivered %q", rs, ack, a.word, a.delivered)
	}
	a.send(a.request("", flags(wire.FlagSilent)), a.request("", port(0)))
	if rs, _ := a.told(); len(rs) != 2 || a.ran != 3 || len(a.delivered) != 1 {
		t.Errorf("silent, ping: %+v, %d ran", rs, a.ran)
	}
	for v, n := range map[Verdict]int{NoSocket: 1, Refused: 2} {
		a.verdict = func(*wire.Header) Verdict { return v }
		for range n { // the second one is refused without asking the host
			a.send(a.request("nobody"))
		}
		if rs, _ := a.told(); len(rs) != 0 || a.ran != 3 || a.aimed != 0 {
			t.Errorf("verdict %v: %+v, %d ran", v, rs, a.ran)
		}
	}
	a.verdict = nil
	a.status = wire.AtomicAccess
	a.send(a.request("no right", flags(wire.FlagResume)))
	if rs, _ := a.told(); len(rs) != 1 || rs[0].Status != wire.AtomicAccess || a.ran != 3 || len(a.delivered) != 1 {
		t.Errorf("no right: %+v, %d ran, delivered %q", rs, a.ran, a.delivered)
	}
	a.status = wire.AtomicNobody
	a.send(a.request("nobody"))
	if f := a.frames(); len(f) == 0 || f[0].DPort != uint16(wire.TypeNoSock) {
		t.Errorf("nobody: %+v", f)
	}
	a.status = wire.AtomicDone
	a.send(a.request("again"))
	if rs, _ := a.told(); len(rs) != 1 || a.ran != 4 || a.c.State() != Up || a.aimed != 0 {
		t.Errorf("in the end: %+v, %d ran, %v", rs, a.ran, a.lastTrace)
	}
}

// TestAtomicOnce: an atomic that comes again does not run again. Its result, which the peer has
// not acked, is sent again.
func TestAtomicOnce(t *testing.T) {
	a := newAtomicScript(t)
	a.up()
	old := a.request("once")
	a.send(old)
	first, _ := a.told()
	a.again()
	again, _ := a.told()
	if len(first) != 1 || len(again) != 1 || first[0] != again[0] {
		t.Fatalf("results %+v, then %+v", first, again)
	}
	var h wire.Header
	if err := wire.Parse(old, &h); err != nil {
		t.Fatal(err)
	}
	h.Flags |= wire.FlagRetransmitted
	h.Put(old)
	a.send(old)
	if a.ran != 1 || len(a.delivered) != 1 {
		t.Errorf("%d ran, %q delivered", a.ran, a.delivered)
	}
	a.send(a.data("acks", func(h *wire.Header) { h.Ack = a.c.out.nextTx - 1 }))
	a.again()
	if rs, _ := a.told(); len(rs) != 0 {
		t.Errorf("sent again behind its ack: %+v", rs)
	}
}

// TestAtomicInFragments: a long message runs its atomic when it is whole, and not when it is
// broken off.
func TestAtomicInFragments(t *testing.T) {
	a := newAtomicScript(t)
	a.up()
	large := strings.Repeat("x", 20<<10)
	piece := a.c.link.maxSend - wire.HeaderLen - wire.AtomicLen
	b := a.request(large)
	head, rest := b[:wire.HeaderLen+wire.AtomicLen], b[wire.HeaderLen+wire.AtomicLen:]
	first, last := append(bytes.Clone(head), rest[:piece]...), append(bytes.Clone(head), rest[piece:]...)
	a.send(first)
	a.again()
	if a.ran != 0 || a.aborts != 1 {
		t.Fatalf("%d ran, %d aborts", a.ran, a.aborts)
	}
	a.send(first)
	a.send(last)
	if rs, _ := a.told(); len(rs) != 1 || a.ran != 1 || len(a.delivered) != 1 || a.delivered[0] != large {
		t.Errorf("%+v, %d ran, %d delivered", rs, a.ran, len(a.delivered))
	}
	a.status = wire.AtomicAccess
	a.seq++
	for _, f := range [][]byte{first, last} {
		var h wire.Header
		_ = wire.Parse(f, &h)
		h.Seq = a.seq
		h.Put(f)
		a.send(f)
	}
	if rs, _ := a.told(); len(rs) != 1 || rs[0].Status != wire.AtomicAccess || a.aborts != 2 {
		t.Errorf("without the right: %+v, %d aborts", rs, a.aborts)
	}
}

// TestAtomicHostile: frames with an atomic that no rdsd sends.
func TestAtomicHostile(t *testing.T) {
	for name, bad := range map[string]func(*atomicScript) [][]byte{
		"with a run":      func(a *atomicScript) [][]byte { return [][]byte{a.request("1234", flags(wire.FlagRun))} },
		"internal":        func(a *atomicScript) [][]byte { return [][]byte{a.request("1234", flags(wire.FlagInternal))} },
		"congestion":      func(a *atomicScript) [][]byte { return [][]byte{a.request("1234", flags(wire.FlagCong))} },
		"short":           func(a *atomicScript) [][]byte { return [][]byte{a.request("")[:wire.HeaderLen+40]} },
		"payload missing": func(a *atomicScript) [][]byte { return [][]byte{a.request("1234")[:wire.HeaderLen+wire.AtomicLen+2]} },
		"unknown kind": func(a *atomicScript) [][]byte {
			b := a.request("1234")
			b[wire.HeaderLen+16] = 7
			return [][]byte{b}
		},
		"another request in the second fragment": func(a *atomicScript) [][]byte {
			b := a.request(strings.Repeat("x", 20<<10))
			n := a.c.link.maxSend
			second := append(bytes.Clone(b[:wire.HeaderLen+wire.AtomicLen]), b[n:]...)
			second[wire.HeaderLen+31]++
			return [][]byte{b[:n], second}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAtomicScript(t)
			a.up()
			for _, b := range bad(a) {
				a.send(b)
			}
			a.wantError(ErrProtocol)
			if a.ran != 0 || a.aimed != 0 {
				t.Errorf("%d ran", a.ran)
			}
		})
	}
	s := newScript(t).up() // its device's atomics are not the processor's
	a := &atomicScript{script: s}
	s.send(a.request("not offered"))
	s.wantError(ErrProtocol)
}
