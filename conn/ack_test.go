package conn

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

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

// The ack does not pass a message whose notice has not been posted; HELLO's
// notice covers what is owed.
func TestAckWaitsForNotice(t *testing.T) {
	s := newScript(t).up(func(h *wire.Hello) { h.Credits = 4 })
	s.verdict = func(h *wire.Header) Verdict {
		if h.DPort == 66 {
			return NoSocket
		}
		return Accepted
	}
	s.credits(0)
	s.send(s.data("fine"), s.data("lost", port(66)), s.data("fine too"))
	if a := s.c.ackValue(); a != s.seq-2 {
		t.Errorf("acks %d, the message before the notice is %d", a, s.seq-2)
	}
	grant := &msg.Msg{Internal: wire.TypeGrant, Data: make([]byte, 32)}
	s.c.Send(grant)
	datagram := s.msg("datagram")
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.raw = nil
	s.connect()
	h, err := wire.ParseHello(s.frames()[0].body)
	if err != nil || h.Ack != s.seq || h.AckInst != 77 || h.Notice != 101 {
		t.Errorf("HELLO %+v, %v", h, err)
	}
	s.hello()
	f := s.frames()
	if len(f) != 3 || f[0].DPort != uint16(wire.TypeNoSock) || f[0].Seq != 100 || u64(f[0].body) != s.seq-1 ||
		f[1].DPort != uint16(wire.TypeGrant) || f[1].Seq != 101 || string(f[2].body) != "datagram" || f[2].Seq != 102 {
		t.Errorf("frames %+v", f)
	}
	s.open(datagram, grant)
	s.send(frame(wire.Header{Ack: 102}, nil))
	s.want(grant, msg.Acked)
}

// The body of a notice counts before the ack of its frame.
func TestNoticeBeforeItsAck(t *testing.T) {
	s := newScript(t).up()
	a, b, c := s.msg("a"), s.msg("b"), s.msg("c")
	s.run()
	n := wire.Notice{Seq: 101, DPort: 4}
	s.seq++
	s.send(frame(wire.Header{Seq: s.seq, Ack: 101, DPort: uint16(wire.TypeNoSock), Flags: wire.FlagInternal}, n.Append(nil)))
	s.want(a, msg.Acked)
	s.want(b, msg.NoSock)
	s.open(c)
}

// TestLastAck: a Conn that is closed acks what has arrived before it breaks the connection off, and
// waits for that until the deadline only.
func TestLastAck(t *testing.T) {
	for name, lost := range map[string]bool{"goes out": false, "does not go out": true, "was posted before": false} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t).up()
			s.send(s.data("not acked"))
			if name == "was posted before" {
				s.now += s.c.cfg.AckDelay
				s.c.Tick(s.now)
			}
			m := s.msg("not sent")
			s.c.Close(s.now)
			s.want(m, msg.Cancelled)
			if s.c.State() != Up || s.c.NeedFlush() {
				t.Fatalf("closed: %v", s.c.State())
			}
			if lost {
				s.now = s.c.NextTimeout()
				s.c.Tick(s.now)
			}
			s.run()
			if f := s.frames(); !lost && (len(f) != 1 || !f[0].IsAck(wire.HeaderLen) || f[0].Ack != s.seq) {
				t.Errorf("%+v", f)
			}
			if s.c.State() != Down {
				t.Errorf("closed and posted: %v", s.c.State())
			}
		})
	}
}

// TestLastAckWaitsForNotice: the ack of a Conn that is closed does not cover a message whose notice has not been posted.
func TestLastAckWaitsForNotice(t *testing.T) {
	for name, v := range map[string]Verdict{"no socket": NoSocket, "refused": Refused} {
		s := newScript(t).up()
		s.verdict = func(h *wire.Header) Verdict {
			if h.DPort == 66 {
				return v
			}
			return Accepted
		}
		s.post(s.data("fine"), s.data("lost", port(66)), s.data("fine too"))
		for s.q.deliver() {
		}
		for _, w := range s.dev.cq {
			s.c.HandleRecv(s.now, &w.wc, w.buf)
		}
		s.dev.cq = nil
		s.c.Close(s.now)
		s.run()
		if f := s.frames(); len(f) != 1 || f[0].Ack != s.seq-2 || s.c.State() != Down {
			t.Errorf("%s: %v, %+v; the message before the notice is %d", name, s.c.State(), f, s.seq-2)
		}
	}
}
