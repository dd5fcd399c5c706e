package conn

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestCoalescing(t *testing.T) {
	s := newScript(t).up()
	for i := range 100 {
		s.msg(strings.Repeat("m", i))
	}
	s.run()
	f := s.frames()
	if len(f) != 100 {
		t.Fatalf("%d frames", len(f))
	}
	for i, g := range f {
		if g.send != 0 || g.Seq != 100+uint64(i) || len(g.body) != i || g.SPort != 3 || g.DPort != 4 || g.SrcInc != 5 {
			t.Fatalf("frame %d: %+v", i, g)
		}
	}
	if n := s.c.Stats().SendFrames; n != 2 { // HELLO and this one
		t.Errorf("%d SENDs", n)
	}
	// No byte of an earlier frame leaks in the padding.
	s.msg(strings.Repeat("\xff", 63))
	s.msg("z")
	s.run()
	if b := s.raw[0]; b[48+63] != 0 {
		t.Errorf("padding is %x", b[48+63])
	}
}

func TestSendSizeLimit(t *testing.T) {
	// The peer takes 16 KiB: what does not fit goes into the next SEND.
	s := newScript(t).up()
	for range 5 {
		s.msg(strings.Repeat("m", 8000))
	}
	s.run()
	for _, b := range s.raw {
		if len(b) > 16<<10 {
			t.Errorf("SEND of %d bytes", len(b))
		}
	}
	if f := s.frames(); len(f) != 5 || f[4].send != 2 {
		t.Errorf("%d frames in %d SENDs", len(f), f[len(f)-1].send+1)
	}
}

func TestReceive(t *testing.T) {
	s := newScript(t).up()
	s.send(s.data("one"), s.data(""), s.data("three"))
	big := strings.Repeat("x", 20_000)
	s.seq++
	h := wire.Header{Seq: s.seq, Len: 20_000, SPort: 7, DPort: 9}
	s.post(frame(h, []byte(big[:16<<10-48])))
	s.post(frame(wire.Header{Credit: 0}, nil)) // an ack frame may come between
	s.post(frame(h, []byte(big[16<<10-48:])))
	s.run()
	if got := strings.Join(s.delivered, ","); got != "one,,three,"+big {
		t.Errorf("delivered %d bytes: %.40q", len(got), got)
	}
	// A duplicate is dropped and acked, in one piece and in fragments.
	s.frames()
	h.Flags = wire.FlagRetransmitted
	s.post(frame(h, []byte(big[:16<<10-48])))
	s.post(frame(h, []byte(big[16<<10-48:])))
	s.post(frame(wire.Header{Seq: s.seq - 1, SPort: 7, DPort: 9, Flags: wire.FlagRetransmitted}, nil))
	s.run()
	if len(s.delivered) != 4 || s.c.Stats().RecvDropOldSeq != 2 {
		t.Errorf("%d delivered, %d dropped", len(s.delivered), s.c.Stats().RecvDropOldSeq)
	}
	if f := s.frames(); len(f) == 0 || f[0].Ack != s.seq {
		t.Errorf("acks %+v", f)
	}
	// A gap is legal.
	s.seq += 1000
	s.send(s.data("gap"))
	if len(s.delivered) != 5 {
		t.Error("a gap")
	}
}

func TestProtocolErrors(t *testing.T) {
	long := wire.Header{Seq: 600, Len: 20_000, SPort: 7, DPort: 9}
	internal := func(ty wire.InternalType, n int) []byte {
		return frame(wire.Header{Seq: 600, DPort: uint16(ty), Flags: wire.FlagInternal}, make([]byte, n))
	}
	bad := frame(wire.Header{Seq: 600}, nil)
	bad[31] ^= 1
	tests := []struct {
		name  string
		sends [][]byte
		text  string
	}{
		{"short", [][]byte{make([]byte, 47)}, "shorter"},
		{"checksum", [][]byte{bad}, "checksum"},
		{"overrun", [][]byte{frame(wire.Header{Seq: 600, Len: 5}, []byte("1234"))}, "overruns"},
		{"short second", [][]byte{append(frame(wire.Header{Seq: 600}, nil), make([]byte, 9)...)}, "shorter"},
		{"sequence 0", [][]byte{frame(wire.Header{SPort: 1, DPort: 2}, nil)}, "sequence 0"},
		{"sequence 0 flagged", [][]byte{frame(wire.Header{SPort: 1, DPort: 2, Flags: wire.FlagRetransmitted}, nil)}, "sequence 0"},
		{"old sequence", [][]byte{frame(wire.Header{Seq: 600}, nil), frame(wire.Header{Seq: 600}, nil)}, "sequence 600 after 600"},
		{"ack of the future", [][]byte{frame(wire.Header{Ack: 100}, nil)}, "ack 100"},
		{"credits", [][]byte{frame(wire.Header{Credit: 1}, nil)}, "credits"},
		{"long SEND", [][]byte{make([]byte, 16<<10+1)}, "largest"},
		{"too long a message", [][]byte{frame(wire.Header{Seq: 600, Len: abi.MaxMessage + 1}, make([]byte, 16<<10-48))}, "at most"},
		{"short fragment", [][]byte{frame(long, make([]byte, 100))}, "fragment of 100"},
		{"long last fragment", [][]byte{frame(long, make([]byte, 16<<10-48)), frame(long, make([]byte, 16<<10-48))}, "want 3664"},
		{"interrupted", [][]byte{frame(long, make([]byte, 16<<10-48)), frame(wire.Header{Seq: 601}, nil)}, "between"},
		{"interrupted by cong", [][]byte{frame(long, make([]byte, 16<<10-48)), frame(wire.Header{Flags: wire.FlagCong}, make([]byte, 8192))}, "between"},
		{"other fragment", [][]byte{frame(long, make([]byte, 16<<10-48)), frame(wire.Header{Seq: 601, Len: 20_000}, make([]byte, 3664))}, "between"},
		{"fragment behind", [][]byte{append(frame(wire.Header{Seq: 600}, nil), frame(long, make([]byte, 1000))...)}, "behind"},
		{"internal fragments", [][]byte{frame(wire.Header{Seq: 600, Len: 20_000, Flags: wire.FlagInternal, DPort: 2}, make([]byte, 16<<10-48))}, "in fragments"},
		{"second HELLO", [][]byte{internal(wire.TypeHello, wire.HelloLen)}, "second HELLO"},
		{"internal from a port", [][]byte{frame(wire.Header{Seq: 600, SPort: 4, DPort: 2, Flags: wire.FlagInternal}, make([]byte, 32))}, "from port 4"},
		{"GRANT", [][]byte{internal(wire.TypeGrant, 31)}, "GRANT body"},
		{"REVOKE", [][]byte{internal(wire.TypeRevoke, 7)}, "body"},
		{"REVOKE on no lane", [][]byte{internal(wire.TypeRevoke, 8)}, "0 connections"},
		{"GRANT_NAK", [][]byte{internal(wire.TypeGrantNak, 7)}, "GRANT_NAK body"},
		{"NOSOCK", [][]byte{internal(wire.TypeNoSock, 15)}, "body"},
		{"NOSOCK of the future", [][]byte{frame(wire.Header{Seq: 600, DPort: 5, Flags: wire.FlagInternal}, (&wire.Notice{Seq: 100}).Append(nil))}, "NOSOCK of 100"},
		{"cong length", [][]byte{frame(wire.Header{Flags: wire.FlagCong}, make([]byte, 8191))}, "congestion"},
		{"cong flags", [][]byte{frame(wire.Header{Flags: wire.FlagCong | wire.FlagAckRequired}, make([]byte, 8192))}, "congestion"},
		{"cong sequence", [][]byte{frame(wire.Header{Seq: 600, Flags: wire.FlagCong}, make([]byte, 8192))}, "congestion"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t).up()
			for i, b := range c.sends {
				if i == len(c.sends)-1 && s.c.State() != Up {
					t.Fatalf("broken before the last frame: %v", s.lastTrace)
				}
				s.post(b)
				if i < len(c.sends)-1 {
					s.run()
				}
			}
			n := len(s.delivered)
			s.post(s.data("after")) // is not listened to
			s.run()
			s.wantError(ErrProtocol)
			if err := s.c.Info().LastError; !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q, want %q in it", err, c.text)
			}
			if s.c.Stats().ProtocolErrors != 1 || len(s.delivered) != n || s.c.State() != Down {
				t.Errorf("errors %d, delivered %q, %v", s.c.Stats().ProtocolErrors, s.delivered, s.c.State())
			}
			if s.part != nil && s.aborts != 1 && c.name != "internal fragments" {
				t.Errorf("%d aborts", s.aborts)
			}
		})
	}
}

func TestPing(t *testing.T) {
	s := newScript(t).up()
	s.send(s.data("payload", port(0)))
	f := s.frames()
	if len(f) != 1 || f[0].SPort != 0 || f[0].DPort != 7 || f[0].DstInc != 1 || f[0].Len != 0 || f[0].Seq != 100 {
		t.Errorf("pong %+v", f)
	}
	s.send(s.data("", port(0), func(h *wire.Header) { h.SPort = 0 }))
	s.cong(7)
	s.send(s.data("", port(0)))
	if f := s.frames(); len(f) != 0 || len(s.delivered) != 0 {
		t.Errorf("ping from port 0, or to a congested one: %+v", f)
	}
	// A pong is a message from port 0.
	s.send(s.data("", func(h *wire.Header) { h.SPort = 0 }))
	if len(s.headers) != 1 || s.headers[0].SPort != 0 || s.headers[0].DPort != 9 {
		t.Errorf("delivered %+v", s.headers)
	}
	// A flood without credits for answers is bounded.
	s.credits(0)
	for range 3 * msg.MaxPongs / 300 {
		var many [][]byte
		for range 300 {
			many = append(many, s.data("", port(0), func(h *wire.Header) { h.SPort = 8 }))
		}
		s.send(many...)
	}
	if n := s.c.out.queue.N; n > msg.MaxPongs {
		t.Errorf("%d pongs wait", n)
	}
}

func TestExtensionHeaders(t *testing.T) {
	s := newScript(t).up()
	m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, DstInc: 6, DestCookie: 7 | 8<<32}
	s.c.Send(m)
	o := s.op(abi.OpWrite, 16)
	s.c.Send(o)
	s.run()
	f := s.frames()
	if len(f) != 2 || f[0].DestCookie() != 7|8<<32 || f[0].DstInc != 6 {
		t.Fatalf("RDMA_DEST: %+v", f)
	}
	if e := f[1].Exts(); e.RDMA != 1 || e.RDMAKeys[0] != s.key || f[1].Flags != wire.FlagAckRequired {
		t.Errorf("RDMA: %+v", f[1])
	}
}
