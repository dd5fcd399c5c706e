package conn

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func takesTraces(h *wire.Hello) { h.Features |= wire.FeatureTraceparent }

var tracePeer = wire.Traceparent{0: 0, 1: 0xa, 17: 0xb, 25: 1}

// traced is a message of the peer with a Traceparent.
func traced(s *script, payload string, change ...func(*wire.Header)) []byte {
	b := s.data("", append(change, (*wire.Header).AddExtTraceparent, func(h *wire.Header) { h.Len = uint32(len(payload)) })...)
	room := make([]byte, wire.TraceparentRoom)
	tracePeer.Put(room)
	return append(append(b, room...), payload...)
}

// TestTraceparentSent: a message, whatever else it has, takes its Traceparent to a peer that has
// said that it takes it, and is the same message without it to any other.
func TestTraceparentSent(t *testing.T) {
	for _, takes := range []bool{true, false} {
		a := newAtomicScript(t)
		hellos := []func(*wire.Hello){serves}
		if takes {
			hellos = append(hellos, takesTraces)
		}
		a.up(hellos...)
		with := func(m *msg.Msg) *msg.Msg { m.Traceparent = &tracePeer; return m }
		large := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: bytes.Repeat([]byte("l"), 40_000)}
		cookie := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("cookie"), DestCookie: 9}
		for _, m := range []*msg.Msg{with(&msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("small")}), with(cookie), with(a.op(abi.OpWrite, 16)),
			with(a.op(abi.OpFetchAdd, 8)), with(large), {SPort: 3, DPort: 4, SrcInc: 5, Data: []byte("plain")}} {
			a.baseHost.send(a.c, m)
		}
		a.run()
		whole, n := map[uint64]*got{}, 0
		for _, b := range a.raw {
			for off := 0; off < len(b); {
				var h wire.Header
				if err := wire.Parse(b[off:], &h); err != nil {
					t.Fatal(err)
				}
				head := headLen(&h)
				end := min(off+head+int(h.Len), len(b))
				if h.Traced() {
					n++
					if p := wire.Traceparent(b[off+head-wire.TraceparentRoom:]); p != tracePeer {
						t.Errorf("frame of %d: %x", h.Seq, p)
					}
				}
				if whole[h.Seq] == nil {
					whole[h.Seq] = &got{Header: h}
				}
				whole[h.Seq].body = append(whole[h.Seq].body, b[off+head:end]...)
				off = wire.Pad(end)
			}
		}
		var bodies []string
		for _, g := range whole {
			bodies = append(bodies, string(g.body[:min(len(g.body), 6)]))
			if string(g.body) == "plain" && g.Traced() {
				t.Error("the plain message has one")
			}
			if string(g.body) == "cookie" && g.DestCookie() != 9 {
				t.Errorf("cookie %d", g.DestCookie())
			}
			if len(g.body) > 6 && !bytes.Equal(g.body, large.Data) {
				t.Errorf("%d bytes of the large one", len(g.body))
			}
		}
		if len(bodies) != 6 || takes != (n == 4+3) || !takes && n != 0 {
			t.Errorf("takes %v: %d frames with one, bodies %q", takes, n, bodies)
		}
	}
}

// TestTraceparentAgain: a message that was sent with its Traceparent is sent again without it, to a
// daemon that does not know it any more, and the other way about.
func TestTraceparentAgain(t *testing.T) {
	for _, knew := range []bool{true, false} {
		s := newScript(t)
		m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: bytes.Repeat([]byte("x"), 20_000), Traceparent: &tracePeer}
		hello := map[bool][]func(*wire.Hello){true: {takesTraces}}
		s.up(hello[knew]...)
		s.baseHost.send(s.c, m)
		s.run()
		before := s.frames()
		s.again(hello[!knew]...)
		after := s.frames()
		if len(before) != 2 || before[0].Traced() != knew || before[1].Traced() != knew {
			t.Errorf("knew %v: %d frames before", knew, len(before))
		}
		if len(after) < 2 || after[0].Traced() == knew || after[0].Seq != before[0].Seq || len(after[0].body)+len(after[1].body) != 20_000 {
			t.Errorf("knew %v: %d frames after", knew, len(after))
		}
	}
}

// TestTraceparentReceived: what comes with a Traceparent is handed up with it, whole or in
// fragments, and what comes without is not.
func TestTraceparentReceived(t *testing.T) {
	s := newScript(t)
	s.up()
	large := strings.Repeat("l", 20_000)
	b := traced(s, large)
	head, piece := wire.HeaderLen+wire.TraceparentRoom, s.c.link.maxSend
	s.send(traced(s, "one"), s.data("two"), traced(s, ""))
	late := bytes.Clone(b)
	var h wire.Header
	_ = wire.Parse(b, &h)
	s.seq++
	h.Seq = s.seq
	h.Put(late)
	s.send(late[:piece])
	s.send(append(bytes.Clone(late[:head]), late[piece:]...))
	if strings.Join(s.delivered, ",") != "one,two,,"+large {
		t.Errorf("%q, %v", s.delivered, s.lastTrace)
	}
	for i, p := range s.parents {
		if (p != nil) != (i != 1) || p != nil && *p != tracePeer {
			t.Errorf("message %d: %v", i, p)
		}
	}
}

// TestTraceparentHostile: frames with a Traceparent that no rdsd sends break the connection, and
// nothing of them is handed up.
func TestTraceparentHostile(t *testing.T) {
	for name, bad := range map[string]func(*script) [][]byte{
		"short":           func(s *script) [][]byte { return [][]byte{traced(s, "")[:wire.HeaderLen+wire.TraceparentLen]} },
		"missing":         func(s *script) [][]byte { return [][]byte{traced(s, "")[:wire.HeaderLen]} },
		"payload missing": func(s *script) [][]byte { return [][]byte{traced(s, "1234")[:wire.HeaderLen+wire.TraceparentRoom+2]} },
		"internal":        func(s *script) [][]byte { return [][]byte{traced(s, "1234", flags(wire.FlagInternal))} },
		"congestion":      func(s *script) [][]byte { return [][]byte{traced(s, "1234", flags(wire.FlagCong))} },
		"with a run": func(s *script) [][]byte {
			return [][]byte{traced(s, "\x00\x00\x00\x00", func(h *wire.Header) { h.SetExtRun(1) })}
		},
		"an ack": func(s *script) [][]byte {
			return [][]byte{traced(s, "", func(h *wire.Header) { *h = wire.Header{} })}
		},
		"another one in the second fragment": func(s *script) [][]byte {
			b := traced(s, strings.Repeat("x", 20<<10))
			n := s.c.link.maxSend
			second := append(bytes.Clone(b[:wire.HeaderLen+wire.TraceparentRoom]), b[n:]...)
			second[wire.HeaderLen+1]++
			return [][]byte{b[:n], second}
		},
		"none in the second fragment": func(s *script) [][]byte {
			b := traced(s, strings.Repeat("x", 20<<10))
			n := s.c.link.maxSend
			var h wire.Header
			_ = wire.Parse(b, &h)
			h.Ext = [wire.ExtLen]byte{}
			return [][]byte{b[:n], frame(h, b[n:])}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t).up()
			for _, b := range bad(s) {
				s.send(b)
			}
			if s.wantError(ErrProtocol); len(s.delivered) != 0 {
				t.Errorf("%q", s.delivered)
			}
		})
	}
	s := newScript(t).up() // of two the first counts
	s.send(traced(s, "twice", func(h *wire.Header) { h.AddExtTraceparent() }))
	if strings.Join(s.delivered, ",") != "twice" {
		t.Errorf("%q, %v", s.delivered, s.lastTrace)
	}
}
