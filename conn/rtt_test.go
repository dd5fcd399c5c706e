package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestRTT(t *testing.T) {
	s := newScript(t).up()
	pass := func(d int64) { s.now += d }
	ack := func() { s.send(frame(wire.Header{Ack: s.c.out.nextTx - 1}, nil)) }
	want := func(last, smoothed, least int64) {
		t.Helper()
		if r := s.c.Info().RTT; r.Last != last || r.Smoothed != smoothed || r.Least != least {
			t.Errorf("%+v, want %d, %d, %d", r, last, smoothed, least)
		}
	}
	if r := s.c.Info().RTT; r != (RTT{}) {
		t.Errorf("before anything was sent: %+v", r)
	}
	send := func(m *msg.Msg) *msg.Msg {
		m.SPort, m.DPort, m.SrcInc, m.Data = 3, 4, 5, []byte("x")
		s.c.Send(m)
		s.run()
		return m
	}
	ask := send(&msg.Msg{AckNow: true, At: s.now})
	pass(400)
	if i := s.c.Info(); i.Oldest != ask.At {
		t.Errorf("the oldest is of %d, want %d", i.Oldest, ask.At)
	}
	send(&msg.Msg{AckNow: true, At: s.now}) // not measured: another one is
	pass(400)
	ack()
	want(800, 800, 800)
	if i := s.c.Info(); i.Oldest != 0 {
		t.Errorf("nothing waits, the oldest is of %d", i.Oldest)
	}
	send(&msg.Msg{}) // asks for nothing, and is not measured
	pass(9000)
	ack()
	want(800, 800, 800)

	s.frames()
	if !s.c.Probe() || s.c.Probe() {
		t.Error("an idle peer is asked once")
	}
	s.c.Flush(s.now)
	s.run()
	if n := s.probes(); n != 1 {
		t.Errorf("%d probes", n)
	}
	pass(1600)
	ack()
	want(1600, 900, 800)

	s.msg("d")
	if s.c.Probe() {
		t.Error("a peer that has to ack something is asked beside that")
	}
	s.run()
}

// What a connection was asked when it broke is not measured by the next one.
func TestRTTOfABrokenConnection(t *testing.T) {
	s := newScript(t).up()
	m := s.msg("a") // the first message of a connection asks for an ack
	s.run()
	if s.c.rtt.seq == 0 {
		t.Error("it is not measured")
	}
	s.now += second
	s.again(func(h *wire.Hello) { h.Ack, h.AckInst = m.Track.Seq, s.c.cfg.Instance })
	s.run()
	if r := s.c.Info().RTT; r.At != 0 {
		t.Errorf("measured: %+v", r)
	}
	if s.c.rtt.seq != 0 {
		t.Error("it is still measured")
	}
}

// TestAnsweredDoesNotAsk: a message asks for no ack if answers have acked all before it, but for the
// first of a connection, and one behind a Probe that found something outstanding.
func TestAnsweredDoesNotAsk(t *testing.T) {
	s := newScript(t).up()
	for i := range 5 * askEvery {
		asks := i == 0
		if i == 3*askEvery {
			asks = true
			s.msg("outstanding")
			s.run()
			s.frames()
			s.c.Probe()
		}
		s.msg("x")
		s.run()
		fs := s.frames()
		if len(fs) != 1 || fs[0].Flags&wire.FlagAckRequired != 0 != asks {
			t.Fatalf("message %d: %+v, asks: %v", i, fs, asks)
		}
		s.send(s.data("answer", func(h *wire.Header) { h.Ack = s.c.out.nextTx - 1 }))
		if fs = s.frames(); len(fs) != 0 {
			t.Fatalf("the answer to message %d is acked by itself: %+v", i, fs)
		}
	}
}

// TestProbeOfEchoes: a Probe that finds something outstanding has the next message ask, also if that has been acked before.
func TestProbeOfEchoes(t *testing.T) {
	s := newScript(t).up()
	for i := range 3 {
		s.msg("x")
		s.run()
		if fs := s.frames(); len(fs) != 1 || fs[0].Flags&wire.FlagAckRequired == 0 {
			t.Fatalf("message %d does not ask: %+v", i, fs)
		}
		s.c.Probe()
		s.send(s.data("answer", func(h *wire.Header) { h.Ack = s.c.out.nextTx - 1 }))
		s.frames()
	}
}
