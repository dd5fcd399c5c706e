package conn

import (
	"encoding/binary"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// FuzzRecv feeds a Conn with traffic of its own a series of SENDs, each behind
// a two-byte length. With the high bit set in the length the headers get a
// right checksum first, so that the fuzzer gets past it.
func FuzzRecv(f *testing.F) {
	add := func(sends ...[]byte) { f.Add(fuzzSends(sends...)) }
	long := wire.Header{Seq: 600, Len: 20_000, SPort: 7, DPort: 9}
	add(frame(wire.Header{Seq: 600, SPort: 7, DPort: 9, Ack: 101}, []byte("datagram")), frame(wire.Header{Ack: 102, Credit: 1}, nil))
	add(frame(long, make([]byte, 16<<10-48)), frame(long, make([]byte, 3664)))
	add(frame(wire.Header{Flags: wire.FlagCong}, make([]byte, 8192)))
	for _, ty := range []wire.InternalType{wire.TypeNoSock, wire.TypeRefused} {
		for _, seq := range []uint64{100, 101, 102} {
			n := wire.Notice{Seq: seq, DPort: 4, SPort: 3, SrcInc: 5}
			add(frame(wire.Header{Seq: 600, DPort: uint16(ty), Flags: wire.FlagInternal}, n.Append(nil)),
				frame(wire.Header{Ack: 102}, nil))
		}
	}
	add(frame(wire.Header{Seq: 600, SPort: 7}, nil), frame(wire.Header{Seq: 600, SPort: 7, Flags: wire.FlagRetransmitted}, nil))

	for _, n := range []int{0, 1, 2, 3, 5, 1 << 30} {
		h := wire.Header{Seq: 600, SPort: 7, DPort: 9}
		h.SetExtRun(n)
		add(frame(h, runs.Of("a", "bcdef")))
	}
	run := wire.Header{Seq: 600, Len: 20_000, SPort: 7, DPort: 9}
	run.SetExtRun(5000)
	add(frame(run, make([]byte, 16<<10-48)), frame(run, make([]byte, 3664)))

	req := make([]byte, wire.AtomicLen)
	(&wire.Atomic{Kind: wire.AtomicFetchAdd, CompareAdd: 1}).Put(req)
	carries := wire.Header{Seq: 600, SPort: 7, DPort: 9, Flags: wire.FlagAtomic, Len: 4}
	add(frame(carries, append(req, "last"...)))
	carries.Len = 20_000
	add(frame(carries, append(req, make([]byte, 16<<10-104)...)), frame(carries, append(req, make([]byte, 20_000-(16<<10-104))...)))
	carries.AddExtTraceparent()
	carries.Len = 4
	add(frame(carries, append(append(req, make([]byte, wire.TraceparentRoom)...), "last"...)))
	carries.Flags, carries.Len = 0, 20_000
	add(frame(carries, make([]byte, 16<<10-48)), frame(carries, make([]byte, 32+20_000-(16<<10-80))))
	for _, st := range []wire.AtomicStatus{wire.AtomicDone, wire.AtomicAccess} {
		r := wire.Result{Notice: wire.Notice{Seq: 103, DPort: 4, SPort: 3, SrcInc: 5}, Status: st, Old: 9}
		add(frame(wire.Header{Seq: 600, DPort: uint16(wire.TypeResult), Flags: wire.FlagInternal}, r.Append(nil)), frame(wire.Header{Ack: 103}, nil))
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		a := newAtomicScript(t)
		s := a.up(serves)
		ms := []*msg.Msg{s.msg("a"), s.op(abi.OpWrite, 16), {SPort: 1, DPort: 4, Data: make([]byte, 40_000)}, s.op(abi.OpFetchAdd, 8)}
		s.c.Send(ms[1])
		s.c.Send(ms[2])
		s.c.Send(ms[3])
		s.run()
		n := 0
		s.verdict = func(h *wire.Header) Verdict {
			if k, ok := h.Run(); !ok || k*frames.Head > int(h.Len) || k > 0 && h.Len > frames.MaxLen {
				t.Errorf("a run of %d datagrams in %d bytes is handed up: %+v", k, h.Len, h)
			}
			n++
			return Verdict(n % 3)
		}
		s.fuzz(b)
		s.c.Close(s.now)
		s.run()
		for _, m := range ms {
			if _, ok := s.done[m]; !ok {
				t.Errorf("message %.3q never ended", m.Data)
			}
		}
		if _, answered := a.results[ms[3]]; a.done[ms[3]] == msg.Acked && !answered {
			t.Error("an atomic succeeded without its result")
		}
		if s.out != 0 || s.c.State() != Down || a.aimed != 0 {
			t.Errorf("%d buffers, %v, %d atomics aimed", s.out, s.c.State(), a.aimed)
		}
	})
}

// fuzzSends is the fuzzers' form of a series of SENDs.
func fuzzSends(sends ...[]byte) (b []byte) {
	for _, s := range sends {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s))|0x8000)
		b = append(b, s...)
	}
	return b
}

// fuzz sends what a fuzzer made up.
func (s *script) fuzz(b []byte) {
	for len(b) >= 2 && s.c.Ready() {
		n := binary.BigEndian.Uint16(b)
		b = b[2:]
		one := append([]byte(nil), b[:min(int(n&0x7fff), len(b))]...)
		b = b[len(one):]
		if len(one) == 0 {
			continue
		}
		if n&0x8000 != 0 && len(one) >= wire.HeaderLen {
			var h wire.Header
			one[30], one[31] = 0, 0
			if wire.Parse(one, &h) == nil {
				h.Put(one)
			}
		}
		s.send(one)
	}
}
