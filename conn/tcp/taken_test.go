package tcp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// start1 is a puppet with the smaller address that has sent one message on its
// first connection.
func start1(t *testing.T) (*tcpPuppet, *puppetStream) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	s, _ := p.dialed()
	return p, s
}

// data returns the frames of s that a socket sent.
func (p *tcpPuppet) data(s *puppetStream) (hs []wire.Header) {
	for _, h := range p.frames(s.out) {
		if h.SPort > wire.ProbePort {
			hs = append(hs, h)
		}
	}
	return hs
}

// What TCP has acknowledged on a connection that the peer's RDS then resets was
// never taken: it is sent again, and ends when the peer has been heard.
func TestTCPAckUnheard(t *testing.T) {
	p, s := start1(t)
	p.run(100)
	if len(p.data(s)) != 1 || len(p.done) != 0 {
		t.Fatalf("sent %v, outcomes %v", p.data(s), p.done)
	}
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	p.run(5)
	s, _ = p.dialed()
	if hs := p.data(s); len(hs) != 1 || hs[0].Flags&wire.FlagRetransmitted == 0 || hs[0].Seq != 100 {
		t.Fatalf("sent again: %+v", hs)
	}
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, "")[:1])
	if len(p.done) != 1 || p.done[0] != msg.Acked {
		t.Errorf("outcomes %v", p.done)
	}
}

// A peer that ignores pings and has nothing to say takes messages all the same;
// one that answers pings is waited for.
func TestTCPAckSilent(t *testing.T) {
	p, _ := start1(t)
	p.run(int(silentNs/time.Millisecond) - 3)
	if len(p.done) != 0 {
		t.Fatalf("outcomes %v", p.done)
	}
	p.run(int(lastAckWait/time.Millisecond) + 3)
	if len(p.done) != 1 || p.done[0] != msg.Acked {
		t.Fatalf("outcomes %v", p.done)
	}
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, "")) // an answer
	p.c.HandleClosed(p.now, 0, nil)
	p.run(5)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("y")})
	if s, _ := p.dialed(); len(p.data(s)) != 1 {
		t.Fatalf("sent %v", p.data(s))
	}
	p.run(10 * int(silentNs/time.Millisecond))
	if len(p.done) != 1 {
		t.Errorf("outcomes %v", p.done)
	}
	p.run(int(answeredNs / time.Millisecond))
	if len(p.done) != 2 || p.done[1] != msg.Acked {
		t.Errorf("outcomes %v", p.done)
	}
}

// What comes of an attempt after a reset of everything is read to its end: the peer
// has accepted it and sent on it.
func TestTCPLateConnection(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	p.c.Reset(p.now, errors.New("by hand"))
	p.run(50)
	s, _ := p.dialed()
	if !s.finished || s.ended || len(s.out) != 0 {
		t.Fatalf("%+v", s)
	}
	p.c.HandleData(p.now, 0, tcpFrame(1, 5, 6, 0, "sent"))
	p.c.HandleClosed(p.now, 0, nil)
	if got := strings.Join(p.got, " "); got != "f:sent" || !s.ended || s.abort {
		t.Errorf("delivered %q, %+v", got, s)
	}
	p.run(5)
	if s, _ = p.dialed(); len(p.data(s)) != 1 {
		t.Errorf("%+v", s)
	}
}

// The peer has time to end its side, and what it sends until then arrives; a peer
// that is not allowed any more has none.
func TestTCPEndWaits(t *testing.T) {
	p, s := start1(t)
	p.c.Reset(p.now, errors.New("by hand"))
	p.run(endNs/1_000_000 - 10)
	p.c.HandleData(p.now, 0, tcpFrame(1, 5, 6, 0, "y"))
	if got := strings.Join(p.got, " "); got != "f:y" || s.ended {
		t.Fatalf("%q, %+v", got, s)
	}
	if p.run(10); !s.ended {
		t.Errorf("%+v", s)
	}
	p.run(10)
	s, _ = p.dialed()
	if p.c.CutOff(p.now, errors.New("forbidden")); !s.ended || !s.abort {
		t.Errorf("%+v", s)
	}
}

// A message that was written and then cancelled does not arrive after its connection has ended,
// when the next one may have brought what is newer.
func TestTCPEndedNotLate(t *testing.T) {
	p, s := start1(t)
	s.unackedAll = true
	m := &msg.Msg{SPort: 5, DPort: 6, Data: []byte("y")}
	p.c.Send(m)
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, ""))
	if p.run(2); len(p.data(s)) != 2 || s.unacked == 0 {
		t.Fatalf("%+v", s)
	}
	p.c.Cancel(m, msg.Cancelled)
	if p.c.HandleClosed(p.now, 0, nil); !s.ended || !s.abort {
		t.Errorf("%+v", s)
	}
}

// Before the lanes are known a socket's messages go on the first one, and later ones wait until those were
// taken. The peer may answer a probe of our former life first: two answers are not always those of our two
// probes.
func TestTCPStaleAnswer(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	s, _ := p.dialed()
	s.unackedAll, s.unacked = true, len(s.out)
	for seq := range uint64(2) {
		p.c.HandleData(p.now, 0, tcpFrame(1+seq, 0, 1, 0, "", 5, 0, 8))
	}
	var others []*puppetStream
	for p.run(2); len(p.dials) > 0; p.run(2) {
		other, _ := p.dialed()
		others = append(others, other)
	}
	sent := func() (n int) {
		for _, o := range others {
			n += len(p.data(o))
		}
		return n
	}
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("y")})
	p.run(10)
	if len(others) != 7 || len(p.data(s)) != 1 || sent() != 0 {
		t.Fatalf("%d lanes, %v on the first, %d messages on others", 1+len(others), p.data(s), sent())
	}
	s.unacked = 0
	p.run(100)
	if sent() != 1 {
		t.Errorf("%d messages on others", sent())
	}
}

// An answer to a probe ends with the connection of the probe, also half written: on the next one it would
// be taken for the answer to another probe.
func TestTCPAnswerEnds(t *testing.T) {
	for _, room := range []int{0, wire.HeaderLen / 2} {
		p := newTCPPuppet(t, false)
		s, lane, _ := p.accept(40000)
		s.room = room
		p.c.HandleData(p.now, lane, tcpFrame(1, wire.ProbePort, 0, 0, ""))
		p.run(2)
		p.c.HandleClosed(p.now, lane, errors.New("reset"))
		s, _, _ = p.accept(40001)
		probes := 0
		for _, h := range p.frames(s.out) {
			if h.DPort == wire.ProbePort {
				t.Errorf("room for %d bytes: the next connection has %+v", room, h)
			}
			if h.SPort == wire.ProbePort {
				probes++
			}
		}
		if probes != 1 {
			t.Errorf("room for %d bytes: %d probes", room, probes)
		}
	}
}
