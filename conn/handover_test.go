package conn

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/rdmaop"
)

// goOn ends a pause: the Conn goes on, or another takes its place that has nothing of it
// but its encoded state.
func (h *worldHost) goOn() {
	w := h.w
	h.halting = false
	if w.rng.IntN(2) == 0 {
		h.c.Resume(w.now)
		return
	}
	state, err := h.c.Encode(handover.Newest, func(m *msg.Msg) uint32 { return uint32(m.Owner.(*sent).id) })
	if err != nil {
		w.fatalf("encode: %v", err)
	}
	for name, is := range map[string]bool{"": true, " with what waits": h.c.out.rtx.N > 0, " with a stopped port": h.c.stops.any(),
		" with notices": h.c.own.N > 0, " with an atomic": w.waits(&h.c.out.rtx, (*msg.Msg).Carried),
		" with a result": w.waits(&h.c.out.rtx, func(m *msg.Msg) bool { return m.Track.Atomic == msg.Answered })} {
		if is {
			w.saw["handed over"+name]++
		}
	}
	h.c.rejectPending() // its request ends with the process
	h.c = New(h.cfg, h)
	h.c.QueueCong(&h.cm)
	seen := map[*sent]bool{}
	err = h.c.Adopt(state, func(n uint32) *msg.Msg {
		s := w.byID[uint64(n)]
		if s == nil || s.done || s.from != h.i {
			w.fatalf("message %d was handed over", n)
		}
		if seen[s] {
			w.fatalf("message %d was handed over twice", n)
		}
		seen[s] = true
		m := *s.msg
		m.Track = msg.Track{}
		s.msg = &m
		return &m
	})
	if err != nil {
		w.fatalf("adopt: %v", err)
	}
	h.c.Resume(w.now)
}

// handedOver is a Conn with something of all that its state has, and its state.
func handedOver(t *testing.T, version uint16) (*script, []byte, []*msg.Msg) {
	t.Helper()
	a := newAtomicScript(t)
	s := a.up(serves)
	s.cong(9)
	ms := []*msg.Msg{nil, nil, a.add(), a.add()}
	s.send(a.request("carries"), a.result(100, wire.AtomicDone, 5))
	s.hold = true
	ms[0], ms[1] = s.msg("posted"), s.msg("too")
	ms[1].DPort = 8
	s.run()
	s.q.toErr(true)
	s.c.Halt(s.now)
	s.hold = false
	op := &msg.Msg{SPort: 3, DPort: 4, Data: []byte("op"), Op: &rdmaop.Op{}}
	s.c.Send(op)
	ms = append(ms, op, s.msg("waits"))
	s.run()
	if s.c.State() != Down {
		t.Fatal(s.c.State())
	}
	s.c.refuseForTest(ms[1])
	s.c.in.refusing[5] = struct{}{}
	o := s.c.ask()
	o.Internal, o.Track.About = 0, 7
	state, err := s.c.Encode(version, func(m *msg.Msg) uint32 { return uint32(slices.Index(ms, m)) })
	if err != nil {
		t.Fatal(err)
	}
	return s, state, ms
}

// refuseForTest has the peer refuse m, which waits to be sent again.
func (c *Conn) refuseForTest(m *msg.Msg) {
	m.Track.List.Remove(m)
	c.refuse(m)
}

// TestHandoverGolden: the bytes of a connection's state do not change within a version, and
// what is read from them is written again as it was.
func TestHandoverGolden(t *testing.T) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) { testGolden(t, v) })
	}
}

// goldenState returns the golden bytes of a version.
func goldenState(t testing.TB, version uint16) []byte {
	want, err := os.ReadFile(fmt.Sprintf("testdata/handover.%d.hex", version))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return golden
}

func testGolden(t *testing.T, version uint16) {
	s, state, ms := handedOver(t, version)
	golden := goldenState(t, version)
	if !slices.Equal(state, golden) {
		t.Errorf("written:\n%x\nthe golden bytes are\n%x", state, golden)
	}
	c := New(s.c.cfg, s)
	again := make([]*msg.Msg, len(ms))
	err := c.Adopt(golden, func(n uint32) *msg.Msg {
		if int(n) >= len(ms) {
			return nil
		}
		if again[n] == nil {
			m := *ms[n]
			m.Track = msg.Track{}
			again[n] = &m
		}
		return again[n]
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, q := &again[2].Track, &again[3].Track; p.Atomic != msg.Answered || p.Op.Local() || q.Atomic != msg.Carried {
		t.Errorf("atomics %+v, %+v", p, q)
	}
	state, err = c.Encode(version, func(m *msg.Msg) uint32 { return uint32(slices.Index(again, m)) })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(state, golden) {
		t.Errorf("read and written again:\n%x\nit was\n%x", state, golden)
	}
}

// FuzzAdopt: whatever the state is, it is refused, or a connection goes on from it and ends.
func FuzzAdopt(f *testing.F) {
	for v := handover.Oldest; v <= handover.Newest; v++ {
		f.Add(goldenState(f, v))
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		s := newScript(t)
		var ms [8]*msg.Msg
		err := s.c.Adopt(state, func(n uint32) *msg.Msg {
			if n >= uint32(len(ms)) {
				return nil
			}
			if ms[n] == nil {
				ms[n] = &msg.Msg{SPort: 3, DPort: uint16(n), Data: []byte("x")}
				if n >= 2 {
					ms[n].Op = &rdmaop.Op{Kind: abi.OpFetchAdd, Len: 8}
				}
			}
			return ms[n]
		})
		if err != nil {
			if !errors.Is(err, handover.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		s.c.Resume(s.now)
		s.run()
		s.c.Close(s.now)
		s.run()
		if s.c.State() != Down || s.c.wanted() {
			t.Fatalf("closed, and %v", s.c.State())
		}
	})
}

// TestNotHandedOver: only a Conn that is halted and Down is handed over.
func TestNotHandedOver(t *testing.T) {
	s := newScript(t).up()
	if _, err := s.c.Encode(1, nil); !errors.Is(err, errNotDown) {
		t.Errorf("up: %v", err)
	}
	s.c.Halt(s.now)
	s.run()
	if _, err := s.c.Encode(1, nil); err != nil {
		t.Errorf("halted: %v", err)
	}
	if _, err := s.c.Encode(0, nil); err == nil {
		t.Error("version 0 was written")
	}
	s.c.Resume(s.now)
	if _, err := s.c.Encode(1, nil); !errors.Is(err, errNotDown) {
		t.Errorf("resumed: %v", err)
	}
}
