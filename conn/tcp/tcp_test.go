package tcp

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// The larger address asks, and is called; it sends nothing on what it dialled.
func TestTCPDirection(t *testing.T) {
	p := newTCPPuppet(t, false)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	s, _ := p.dialed()
	if len(s.out) != 0 || !s.ended || p.up {
		t.Fatalf("on its own connection it wrote %d bytes; ended %v", len(s.out), s.ended)
	}
	s, _, err := p.accept(40000)
	if err != nil {
		t.Fatal(err)
	}
	hs := p.frames(s.out)
	if len(hs) != 3 || hs[0].Flags != wire.FlagCong || hs[1].SPort != 5 || hs[1].Seq != 100 || !hs[2].IsProbe() || hs[2].Handshake().Paths != 8 {
		t.Fatalf("wrote %+v", hs)
	}
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, ""))
	if len(p.done) != 1 || p.done[0] != msg.Acked {
		t.Errorf("outcomes %v", p.done)
	}
	if _, _, err = p.accept(40001); !errors.Is(err, ErrLaneBusy) {
		t.Errorf("a second connection while one lane is agreed: %v", err)
	}
}

// The smaller address never accepts; being called is being asked to connect.
func TestTCPAsked(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.run(10)
	if len(p.dials) != 0 {
		t.Fatal("it connects for nothing")
	}
	s, _, err := p.accept(40000)
	if !errors.Is(err, ErrPoked) || len(s.out) != 0 {
		t.Fatalf("accept: %v, %d bytes", err, len(s.out))
	}
	s, lane := p.dialed()
	if !p.up || lane != 0 {
		t.Fatal("not up")
	}
	if hs := p.frames(s.out); len(hs) != 2 || hs[0].Flags != wire.FlagCong || !hs[1].IsProbe() || !hs[1].Handshake().BySPort {
		t.Fatalf("wrote %+v", hs)
	}
	// The answer brings the other lanes, one after the other.
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, "", 5, 0, 8))
	for i := 1; i < 8; i++ {
		p.run(2)
		if _, lane := p.dialed(); lane != i {
			t.Fatalf("lane %d instead of %d", lane, i)
		}
	}
	p.run(2)
	if len(p.dials) != 0 || p.c.up != 8 {
		t.Errorf("%d more, %d up", len(p.dials), p.c.up)
	}
	// It comes back by itself: who has the larger address waits for it.
	p.c.HandleClosed(p.now, 3, nil)
	p.run(5)
	if _, lane := p.dialed(); lane != 3 {
		t.Errorf("lane %d came back", lane)
	}
}

// What TCP has acked is done and not sent again; the rest is, flagged.
func TestTCPAcks(t *testing.T) {
	p := newTCPPuppet(t, true)
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("one")})
	p.run(2)
	d := p.dials[0]
	p.dials = nil
	s := &puppetStream{room: -1, unackedAll: true}
	p.c.HandleConnected(p.now, d.lane, d.id, s, true)
	p.run(3)
	p.c.HandleData(p.now, 0, tcpFrame(1, 5, 6, 0, "it is there"))
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("two")})
	s.room = 60
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: bytes.Repeat([]byte("3"), 30_000)}) // half of it
	p.run(2)
	if len(p.done) != 0 {
		t.Fatalf("done without an ack: %v", p.done)
	}
	s.unacked = 60 + 2 // of the probe, too
	p.run(30)
	if len(p.done) != 1 || p.done[0] != msg.Acked {
		t.Fatalf("outcomes %v", p.done)
	}
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	if !s.ended || !s.abort || p.up {
		t.Fatalf("%+v", s)
	}
	p.run(5)
	s, _ = p.dialed()
	p.run(5)
	var seqs []uint64
	for _, h := range p.frames(s.out) {
		if h.Flags == wire.FlagCong {
			continue
		}
		if (h.Flags&wire.FlagRetransmitted == 0) != h.IsProbe() {
			t.Errorf("flags: %+v", h)
		}
		seqs = append(seqs, h.Seq)
	}
	if len(seqs) != 3 || seqs[0] != 102 || seqs[1] != 103 || seqs[2] != 104 { // and a new probe for the old
		t.Errorf("sent again: %v", seqs)
	}
	p.c.HandleData(p.now, 0, tcpFrame(2, 5, 6, 0, "it is there"))
	p.run(30)
	if len(p.done) != 3 {
		t.Errorf("outcomes %v", p.done)
	}
}

// Pings: answered from port 0, on the same lane, without payload, when they are whole; not from port
// 0, not to a congested port, not when they are ignored, and not without bound.
func TestTCPPings(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, lane, _ := p.accept(40000)
	s.out = nil
	ping := tcpFrame(1, 77, 0, 0, "payload")
	p.c.HandleData(p.now, lane, ping[:len(ping)-1])
	p.run(2)
	if len(s.out) != 0 {
		t.Errorf("half a ping is answered: %x", s.out)
	}
	p.c.HandleData(p.now, lane, ping[len(ping)-1:])
	p.c.HandleData(p.now, lane, tcpFrame(2, 0, 0, 0, ""))
	p.run(2)
	if hs := p.frames(s.out); len(hs) != 1 || hs[0].SPort != 0 || hs[0].DPort != 77 || hs[0].Len != 0 {
		t.Errorf("answers %+v", hs)
	}
	full := make([]byte, wire.CongLen)
	full[77>>3] |= 1 << (77 & 7)
	s.out = nil
	p.c.HandleData(p.now, lane, tcpFrame(0, 0, 0, wire.FlagCong, string(full)))
	p.c.HandleData(p.now, lane, tcpFrame(3, 77, 0, 0, ""))
	p.run(2)
	if len(s.out) != 0 || p.maps != 1 || !p.c.RemoteCong().Test(77) {
		t.Errorf("answered a congested port: %x", s.out)
	}
	s.room = 0
	for i := range 3 * msg.MaxPongs {
		p.c.HandleData(p.now, lane, tcpFrame(uint64(4+i), 78, 0, 0, ""))
	}
	if n := p.c.lanes[0].out.queue.N; n > msg.MaxPongs {
		t.Errorf("%d answers wait", n)
	}
	p.c.HandleClosed(p.now, lane, nil)
	if !p.c.RemoteCong().Empty() || p.maps != 2 {
		t.Error("the map of a peer that is gone is believed")
	}
}

// A lane that the peer has lost is asked for, and given up.
func TestTCPLostLanes(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, _, _ := p.accept(40000)
	s.out = nil
	if _, _, err := p.accept(40001); !errors.Is(err, ErrLaneBusy) {
		t.Fatal(err)
	}
	p.run(2)
	if hs := p.frames(s.out); len(hs) != 1 || hs[0].Flags != wire.FlagCong {
		t.Errorf("a lane that may be gone is sent %+v", hs)
	}
	// With peers whose ports say the lane there is no doubt: the new one counts.
	p.c.HandleData(p.now, 0, tcpFrame(1, 1, 0, 0, "", 5, 0, 8, 8, 0))
	if _, lane, err := p.accept(40000 + 8); err != nil || lane != 0 {
		t.Fatal(lane, err)
	}
	if !s.ended || !s.abort {
		t.Errorf("%+v", s)
	}
	for _, port := range []uint16{40003, 40000, 40007} {
		if _, lane, err := p.accept(port); err != nil || lane != int(port&7) {
			t.Errorf("port %d: lane %d, %v", port, lane, err)
		}
	}
}

// A peer whose generation changed is another one: what was sent to the old life is
// Lost, and its sequences mean nothing.
func TestTCPGeneration(t *testing.T) {
	p := newTCPPuppet(t, false)
	_, lane, _ := p.accept(40000)
	p.c.HandleData(p.now, lane, tcpFrame(50, 1, 0, 0, "", 5, 0, 1, 6, 0, 0, 0, 1))
	p.c.HandleData(p.now, lane, tcpFrame(51, 5, 6, 0, "old"))
	p.c.lanes[0].stream.(*puppetStream).unackedAll = true
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	p.c.HandleClosed(p.now, lane, errors.New("reset"))
	p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("y")})
	s := &puppetStream{room: 0}
	if lane, _ = p.c.HandleAccept(p.now, s, 40001); lane != 0 {
		t.Fatal(lane)
	}
	p.c.HandleData(p.now, lane, tcpFrame(1, 1, 0, 0, "", 5, 0, 1, 6, 0, 0, 0, 2))
	p.c.HandleData(p.now, lane, tcpFrame(2, 5, 6, wire.FlagRetransmitted, "new"))
	if len(p.done) != 1 || p.done[0] != msg.Lost {
		t.Errorf("outcomes %v", p.done)
	}
	if got := strings.Join(p.got, " "); got != "f:old f:new" {
		t.Errorf("delivered %q", got)
	}
}

// Messages that are withdrawn, given up, or end with the association.
func TestTCPEnds(t *testing.T) {
	p := newTCPPuppet(t, true)
	queued, given, closed, op := &msg.Msg{SPort: 5}, &msg.Msg{SPort: 5}, &msg.Msg{SPort: 6, Data: make([]byte, 30_000)}, &msg.Msg{SPort: 7}
	p.c.Send(&msg.Msg{SPort: 7, DestCookie: 1 << 32}) // a Linux host would fail on it
	p.c.Send(queued)
	p.c.Send(given)
	if p.c.Cancel(queued, msg.Cancelled) {
		t.Error("later")
	}
	if o, later := p.c.GiveUp(given); o != msg.Withdrawn || later {
		t.Errorf("%v %v", o, later)
	}
	op.Internal = wire.TypeGrant
	p.c.Send(op)
	p.c.Send(closed)
	p.run(2)
	d := p.dials[0]
	s := &puppetStream{room: 9000}
	p.c.HandleConnected(p.now, d.lane, d.id, s, true)
	p.run(2)
	p.c.Close(p.now) // half of it is written: it ends with the stream
	p.c.Send(&msg.Msg{})
	if !s.finished || s.ended {
		t.Errorf("%+v", s)
	}
	want := []msg.Outcome{msg.OpRefused, msg.Cancelled, msg.Withdrawn, msg.Cancelled, msg.Cancelled}
	if !slices.Equal(p.done, want) {
		t.Errorf("outcomes %v", p.done)
	}
	p.run(2000)
	if !s.ended || p.c.State() != conn.Down || len(p.done) != len(want)+1 || p.done[5] != msg.Cancelled {
		t.Errorf("%+v, %v, %v", s, p.c.State(), p.done)
	}
	if _, _, err := p.accept(1); !errors.Is(err, conn.ErrClosed) {
		t.Error(err)
	}
}

// A kernel that had eight lanes with an earlier life of ours connects all of them
// again, and sends by one of them: nothing tells which.
func TestTCPMoreLanesThanOffered(t *testing.T) {
	p := newTCPPuppet(t, false)
	p.c.cfg.Lanes = 1
	s, _, err := p.accept(40000)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.accept(40001); err == nil {
		t.Fatal("a second connection before the handshake")
	}
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, "", 5, 0, 8))
	for i := 1; i < 8; i++ {
		extra, lane, err := p.accept(uint16(40001 + i))
		if err != nil || lane != i {
			t.Fatalf("connection %d: lane %d, %v", i, lane, err)
		}
		p.c.HandleData(p.now, lane, tcpFrame(uint64(100+i), 7, 6, 0, "x"))
		if len(extra.out) != 0 {
			t.Errorf("%d bytes sent on lane %d", len(extra.out), i)
		}
	}
	if _, _, err := p.accept(40009); !errors.Is(err, ErrLaneBusy) {
		t.Errorf("a ninth: %v", err)
	}
	if len(p.got) != 7 {
		t.Errorf("received %v", p.got)
	}
	// A pong that a lane beyond ours has not sent ends with its connection.
	p.c.HandleData(p.now, 7, tcpFrame(200, 9, 0, 0, "")) // no probe: those end with each connection
	p.c.HandleClosed(p.now, 7, nil)
	if i := p.c.Info(); i.Queued != 0 {
		t.Errorf("%d messages wait for a lane that the peer need not bring back", i.Queued)
	}
	p.run(2)
	out := len(s.out)
	for port := range uint16(16) {
		p.c.Send(&msg.Msg{SPort: 100 + port, DPort: 6, Data: []byte("x")})
	}
	p.run(5)
	if hs := p.frames(s.out[out:]); len(hs) != 16 || p.c.n != 1 {
		t.Errorf("%d messages on the lane we offered, %d lanes", len(hs), p.c.n)
	}
	// When that one is gone a new one has to come, whatever the peer believes.
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	for i := 1; i < 7; i++ {
		if x := &p.c.lanes[i]; x.state != conn.Error {
			t.Errorf("lane %d is %v", i, x.state)
		}
	}
	if _, lane, err := p.accept(40010); err != nil || lane != 0 {
		t.Errorf("lane %d, %v", lane, err)
	}
}
