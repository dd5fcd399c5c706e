package conn

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// bound is an up-call of script.
type bound struct {
	m   *msg.Msg
	inc uint32
}

// TestTellsBound: a message that names no incarnation is answered with the socket
// that accepted it, ahead of any ack that covers it; others are not, and one that does not ask is not.
func TestTellsBound(t *testing.T) {
	s := newScript(t).up()
	s.met = 55
	means := func(h *wire.Header) { h.DstInc = 55 }
	large := strings.Repeat("x", 20<<10)
	s.send(s.data("asks"), s.data("means one", means))
	s.send(s.data("does not ask", (*wire.Header).SetExtAnybody))
	s.seq++
	h := wire.Header{Seq: s.seq, SPort: 7, DPort: 9, SrcInc: 1, Len: uint32(len(large))}
	piece := s.c.link.maxSend - wire.HeaderLen
	s.send(frame(h, []byte(large[:piece])))
	s.send(frame(h, []byte(large[piece:])))
	s.verdict = func(*wire.Header) Verdict { return NoSocket }
	s.send(s.data("nobody"))
	s.verdict = func(*wire.Header) Verdict { return Refused }
	s.send(s.data("refused"))
	s.now += 2_000_000
	s.c.Tick(s.now)
	s.run()
	var told []uint64
	for _, f := range s.frames() {
		if f.Flags&wire.FlagInternal == 0 {
			continue
		}
		if b, err := wire.ParseBound(f.body); f.DPort == uint16(wire.TypeBound) {
			want := wire.Bound{Notice: wire.Notice{Seq: b.Seq, DPort: 9, SPort: 7, SrcInc: 1}, DstInc: 55}
			if err != nil || b != want {
				t.Errorf("%+v, %v", b, err)
			}
			told = append(told, b.Seq)
		}
		if last := s.seq; f.Ack >= last-2 && !slices.Contains(told, last-2) {
			t.Errorf("an ack of %d ahead of BOUND", f.Ack)
		}
	}
	if want := []uint64{s.seq - 5, s.seq - 2}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}

// TestAsksNobody: a message for anybody says so, whatever else its header has, unless it names a socket.
func TestAsksNobody(t *testing.T) {
	s := newScript(t).up()
	for _, m := range []*msg.Msg{
		{Anybody: true}, {Anybody: true, Data: []byte(strings.Repeat("x", 20<<10))}, {Anybody: true, DestCookie: 7}, {},
		{Anybody: true, DstInc: 55}, {Anybody: true, Run: 1, Data: []byte{0, 0, 0, 0}},
	} {
		m.SPort, m.DPort, m.SrcInc = 3, 4, 1
		s.c.Send(m)
		s.run()
		for i, f := range s.frames() {
			if want := m.Anybody && m.DstInc == 0; f.Anybody() != want || f.DestCookie() != m.DestCookie || len(f.body) == 0 && len(m.Data) > 0 {
				t.Errorf("%+v: frame %d says %v", m, i, f.Anybody())
			}
			if n, ok := f.Run(); n != m.Run || !ok {
				t.Errorf("a run of %d, %v", n, ok)
			}
		}
	}
}

// TestBound: BOUND reaches the host while its message is open, and says that what
// was sent before was accepted.
func TestBound(t *testing.T) {
	s := newScript(t).up()
	a, b := s.msg("a"), s.msg("b")
	s.run()
	body := func(seq uint64, inc uint32) []byte {
		return (&wire.Bound{Notice: wire.Notice{Seq: seq, DPort: 4}, DstInc: inc}).Append(nil)
	}
	tell := func(seq uint64, inc uint32) {
		s.seq++
		s.send(frame(wire.Header{Seq: s.seq, DPort: uint16(wire.TypeBound), Flags: wire.FlagInternal}, body(seq, inc)))
	}
	tell(101, 9)
	if want := []bound{{b, 9}}; !slices.Equal(s.bounds, want) {
		t.Errorf("%+v, want %+v", s.bounds, want)
	}
	s.want(a, msg.Acked)
	s.open(b)
	s.send(frame(wire.Header{Ack: 101}, nil))
	s.want(b, msg.Acked)
	tell(101, 9) // of one that has ended
	if len(s.bounds) != 1 || s.c.State() != Up {
		t.Errorf("%+v, %v", s.bounds, s.lastTrace)
	}
	for _, bad := range [][2]uint64{{102, 9}, {0, 9}, {101, 0}} {
		s := newScript(t).up()
		s.msg("a")
		s.msg("b")
		s.run()
		s.seq++
		s.send(frame(wire.Header{Seq: s.seq, DPort: uint16(wire.TypeBound), Flags: wire.FlagInternal}, body(bad[0], uint32(bad[1]))))
		if s.c.Ready() || len(s.bounds) != 0 {
			t.Errorf("BOUND of %d by %d is taken", bad[0], bad[1])
		}
	}
}

// TestBoundOverBreak: the answer survives the connection, and is there before the
// message settles.
func TestBoundOverBreak(t *testing.T) {
	s := newScript(t).up()
	s.met = 55
	s.credits(0)
	s.send(s.data("asks"))
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.raw = nil
	s.connect()
	h, err := wire.ParseHello(s.frames()[0].body)
	if err != nil || h.Ack != s.seq || h.Notice != 100 {
		t.Errorf("HELLO %+v, %v", h, err)
	}
	s.hello()
	if f := s.frames(); len(f) != 1 || f[0].DPort != uint16(wire.TypeBound) || u64(f[0].body) != s.seq {
		t.Errorf("frames %+v", f)
	}
}
