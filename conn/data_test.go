package conn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
	"github.com/rdsd/rdsd/verbs"
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

func TestLargeMessages(t *testing.T) {
	for _, n := range []int{8193, 16<<10 - 48, 16<<10 - 47, 100_000, wire.MaxMessage} {
		for _, registered := range []bool{true, false} {
			t.Run(fmt.Sprint(n, registered), func(t *testing.T) {
				s := newScript(t).up()
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(i * 7)
				}
				m := &Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: data, AckNow: true}
				if registered {
					m.LKey = s.dev.reg(data)
				}
				s.c.Send(m)
				s.run()
				var all []byte
				for round := 0; len(all) < n; round++ {
					f := s.frames()
					if len(f) == 0 {
						t.Fatalf("%d of %d bytes", len(all), n)
					}
					for _, g := range f {
						if g.Seq != 100 || int(g.Len) != n || len(g.body) != min(n-len(all), 16<<10-48) {
							t.Fatalf("fragment %+v with %d bytes at %d", g.Header, len(g.body), len(all))
						}
						all = append(all, g.body...)
					}
					// Return credits.
					s.send(frame(wire.Header{Credit: uint8(len(f))}, nil))
				}
				if string(all) != string(data) {
					t.Error("wrong bytes")
				}
				s.open(m)
				s.send(frame(wire.Header{Ack: 100}, nil))
				s.want(m, Acked)
			})
		}
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
		{"too long a message", [][]byte{frame(wire.Header{Seq: 600, Len: wire.MaxMessage + 1}, make([]byte, 16<<10-48))}, "at most"},
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
		{"REVOKE on no lane", [][]byte{internal(wire.TypeRevoke, 8)}, "0 lanes"},
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

func TestCreditOverrun(t *testing.T) {
	s := newScript(t, func(c *Config) { c.RecvCredits = 4 }).up()
	s.credits(0) // it can return none
	for range 4 {
		s.send(s.data("x"))
	}
	if s.c.State() != Up {
		t.Fatal(s.lastTrace)
	}
	s.send(s.data("x"))
	s.wantError(ErrProtocol)
}

func TestAcks(t *testing.T) {
	s := newScript(t).up()
	s.send(s.data("asks", flags(wire.FlagAckRequired)))
	if f := s.frames(); len(f) != 1 || !f[0].IsAck(wire.HeaderLen) || f[0].Ack != s.seq || f[0].Credit != 1 {
		t.Errorf("ACK_REQUIRED: %+v", f)
	}
	s.send(s.data("does not"))
	if f := s.frames(); len(f) != 0 {
		t.Errorf("an ack at once: %+v", f)
	}
	if s.c.NextTimeout() != s.now+1e6 {
		t.Errorf("ack due at %d", s.c.NextTimeout())
	}
	s.now += 1e6
	s.c.Tick(s.now)
	s.run()
	if f := s.frames(); len(f) != 1 || f[0].Ack != s.seq {
		t.Errorf("after AckDelay: %+v", f)
	}
	if s.c.NextTimeout() != 0 {
		t.Error("the ack timer goes on")
	}
	s.send(s.data("x"))
	s.msg("y")
	s.run()
	if f := s.frames(); len(f) != 1 || string(f[0].body) != "y" || f[0].Ack != s.seq || f[0].Credit != 1 || s.c.NextTimeout() != 0 {
		t.Errorf("piggyback: %+v", f)
	}
	for range 8 { // 64 KiB
		s.send(s.data(strings.Repeat("z", 8192)))
	}
	if f := s.frames(); len(f) != 1 || f[0].Ack < s.seq-1 {
		t.Errorf("after AckBytes: %+v", f)
	}
}

// Without a buffer in the pool an ack still goes out.
func TestAckWithoutBuffers(t *testing.T) {
	s := newScript(t).up()
	s.bufs = nil
	s.msg("waits")
	s.post(s.data("asks", flags(wire.FlagAckRequired)))
	s.q.deliver()
	w := s.dev.cq[0]
	s.dev.cq = nil
	s.c.HandleRecv(s.now, &w.wc, w.buf)
	s.c.Flush(s.now)
	if !s.c.NeedFlush() {
		t.Error("it would not try again")
	}
	q := s.dev.qps[0]
	for q.toWire() {
	}
	for q.deliver() {
	}
	s.raw = append(s.raw, s.peer.cq[len(s.peer.cq)-1].buf)
	if f := s.frames(); len(f) != 1 || f[0].Ack != s.seq {
		t.Errorf("%+v", f)
	}
}

func TestCreditReturn(t *testing.T) {
	s := newScript(t, func(c *Config) { c.RecvCredits = 8; c.AckDelay = 1e9; c.AckBytes = 1 << 30 }).up()
	for i := range 3 {
		s.send(s.data("x"))
		if f := s.frames(); len(f) != 0 {
			t.Fatalf("after %d: %+v", i+1, f)
		}
	}
	s.send(s.data("x"))
	if f := s.frames(); len(f) != 1 || f[0].Credit != 4 {
		t.Errorf("half of the credits owed: %+v", f)
	}
}

func TestLastCredit(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	for range 3 {
		s.msg("x")
		s.run()
	}
	if f := s.frames(); len(f) != 3 {
		t.Fatalf("%d frames", len(f))
	}
	s.msg("needs the last")
	s.c.Send(&Msg{Internal: wire.TypeRevoke, Data: make([]byte, 8)})
	s.run()
	if f := s.frames(); len(f) != 0 {
		t.Fatalf("the last credit was used: %+v", f)
	}
	s.send(s.data("gives one to return"))
	if f := s.frames(); len(f) != 2 || f[0].Credit != 1 {
		t.Errorf("with something to return: %+v", f)
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
	for range 3 * maxPongs / 300 {
		var many [][]byte
		for range 300 {
			many = append(many, s.data("", port(0), func(h *wire.Header) { h.SPort = 8 }))
		}
		s.send(many...)
	}
	if n := s.c.out.queue.n; n > maxPongs {
		t.Errorf("%d pongs wait", n)
	}
}

// credits sets what the Conn may send.
func (s *script) credits(n uint32) { s.c.credits.left = n }

func TestExtensionHeaders(t *testing.T) {
	s := newScript(t).up()
	m := &Msg{SPort: 3, DPort: 4, SrcInc: 5, DstInc: 6, DestCookie: 7 | 8<<32}
	s.c.Send(m)
	o := s.op(rdmaop.Write, 16)
	s.c.Send(o)
	s.run()
	f := s.frames()
	if len(f) != 2 || f[0].DestCookie() != 7|8<<32 || f[0].DstInc != 6 {
		t.Fatalf("RDMA_DEST: %+v", f)
	}
	if e := f[1].Exts(); e.RDMA != 1 || e.RDMAKeys[0] != uint32(s.key) || f[1].Flags != wire.FlagAckRequired {
		t.Errorf("RDMA: %+v", f[1])
	}
}

func TestCongestion(t *testing.T) {
	s := newScript(t).up()
	if len(s.raw) != 0 {
		t.Error("an empty map was sent")
	}
	s.cong(5, 9)
	if s.congs != 1 || !s.c.RemoteCong().Test(5) || !s.c.RemoteCong().Test(9) || s.c.RemoteCong().Count() != 2 {
		t.Error("map not taken")
	}
	local := new(cong.Map)
	local.Set(33)
	s.c.QueueCong(local)
	local.Set(34)
	s.c.QueueCong(local)
	s.msg("behind it")
	s.run()
	f := s.frames()
	if len(f) != 2 || f[0].Flags != wire.FlagCong || f[0].Seq != 0 || f[0].Len != 8192 ||
		f[0].body[4] != 1<<1|1<<2 || string(f[1].body) != "behind it" {
		t.Errorf("frames %d", len(f))
	}
	local.Reset()
	s.again()
	if f := s.frames(); len(f) != 2 || f[0].Flags != wire.FlagCong || strings.Trim(string(f[0].body), "\x00") != "" {
		t.Errorf("after a reconnect the map goes out whole and first: %d frames", len(f))
	}
}

func TestForgetPartial(t *testing.T) {
	s := newScript(t).up()
	s.seq++
	h := wire.Header{Seq: s.seq, Len: 20_000, SPort: 7, DPort: 9}
	s.send(frame(h, make([]byte, 16<<10-48)))
	s.c.ForgetPartial("no such token")
	s.c.ForgetPartial(&s.part[0])
	buf := s.part
	s.send(frame(h, []byte(strings.Repeat("x", 20_000-16<<10+48))))
	if len(s.delivered) != 0 || s.aborts != 0 || strings.Contains(string(buf), "x") {
		t.Errorf("delivered %d, aborts %d", len(s.delivered), s.aborts)
	}
	f := s.frames()
	if len(f) != 1 || f[0].Flags&wire.FlagInternal == 0 || f[0].DPort != uint16(wire.TypeNoSock) || u64(f[0].body) != s.seq {
		t.Errorf("NOSOCK: %+v", f)
	}
}

func TestCancelMatching(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	data := make([]byte, 9000)
	large := &Msg{SPort: 1, DPort: 4, Data: data, LKey: s.dev.reg(data)}
	s.c.Send(large)
	op := s.op(rdmaop.Write, 16)
	op.SPort = 1
	s.c.Send(op)
	small := &Msg{SPort: 1, DPort: 4}
	s.c.Send(small)
	other := &Msg{SPort: 2, DPort: 4}
	s.c.Send(other)
	s.run()
	queued := &Msg{SPort: 1, DPort: 4}
	s.c.Send(queued)
	s.c.CancelMatching(func(m *Msg) bool { return m.SPort == 1 }, Cancelled)
	s.want(queued, Cancelled)
	s.want(small, Cancelled) // its bytes were copied
	s.open(large, op, other)
	if s.local[op] {
		t.Error("operation local while posted")
	}
	s.hold = false
	s.run()
	s.want(large, Cancelled)
	s.want(op, Cancelled)
	if !s.local[op] {
		t.Error("operation never local")
	}
	s.open(other)
	s.send(frame(wire.Header{Ack: 103}, nil))
	s.want(other, Acked)
}

// A cancelled message that is half sent is sent to its end: the peer waits for
// its fragments.
func TestCancelHalfSent(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	data := make([]byte, 100_000)
	m := &Msg{SPort: 1, DPort: 4, Data: data, LKey: s.dev.reg(data)}
	s.c.Send(m)
	s.run()
	s.c.CancelMatching(func(*Msg) bool { return true }, Cancelled)
	s.open(m)
	got := 0
	for i := 0; got < len(data) && i < 20; i++ {
		f := s.frames()
		for _, g := range f {
			got += len(g.body)
		}
		s.send(frame(wire.Header{Credit: uint8(len(f))}, nil))
	}
	if got != len(data) {
		t.Errorf("%d bytes sent", got)
	}
	s.want(m, Cancelled)
}

func TestPostFailure(t *testing.T) {
	for name, accept := range map[string]int{"nothing": 0, "a part": 1} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t).up()
			op := s.op(rdmaop.Write, 16)
			plain := &Msg{SPort: 3, DPort: 4}
			s.c.Send(op)
			s.dev.postFail = func([]verbs.SendWR) int { s.dev.postFail = nil; return accept }
			s.run()
			s.c.Send(plain)
			if s.c.State() == Up || !s.local[op] || len(s.downs) != 1 {
				t.Fatalf("%v, local %v, down %v", s.c.State(), s.local[op], s.downs)
			}
			s.open(op)
			s.dropRequests()
			s.up()
			s.want(op, Dropped)
			if f := s.frames(); len(f) != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestDrainTimeout(t *testing.T) {
	s := newScript(t).up()
	s.hold = true
	op := s.op(rdmaop.Write, 16)
	s.c.Send(op)
	s.run()
	s.c.Reset(s.now, errors.New("x"))
	s.dev.cq = nil // a provider that never completes them
	s.c.CQEmpty(s.now)
	if s.c.State() != Error || s.local[op] {
		t.Fatalf("%v", s.c.State())
	}
	s.now = s.c.NextTimeout()
	s.c.Tick(s.now)
	if s.c.State() == Error || !s.local[op] {
		t.Errorf("%v, local %v", s.c.State(), s.local[op])
	}
}
