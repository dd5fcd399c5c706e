package tcp

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// tcpRun sends a run of the payloads.
func (p *tcpPuppet) tcpRun(payloads ...string) *msg.Msg {
	m := &msg.Msg{SPort: 5, DPort: 6, Data: runs.Of(payloads...), Run: len(payloads)}
	p.c.Send(m)
	return m
}

// messages returns the payloads of the messages among what was written, of which the
// first has sequence from, and checks that the others follow.
func (p *tcpPuppet) messages(b []byte, from uint64) (out []string) {
	p.Helper()
	for _, h := range p.frames(b) {
		b = b[wire.HeaderLen:]
		if h.Flags != wire.FlagCong && !h.IsProbe() {
			if h.Seq != from || h.SPort != 5 || h.DPort != 6 || h.Flags&^wire.FlagRetransmitted != 0 {
				p.Fatalf("%+v, want sequence %d", h, from)
			}
			from++
			out = append(out, string(b[:h.Len]))
		}
		b = b[h.Len:]
	}
	return out
}

// TestTCPRun: each datagram of a run is a message by itself, in order and with a sequence
// of its own, whatever the stream takes at a time.
func TestTCPRun(t *testing.T) {
	for _, room := range []int{-1, 1, 47, 50, 1000} {
		p := newTCPPuppet(t, false)
		s, _, err := p.accept(40000)
		if err != nil {
			t.Fatal(err)
		}
		s.out = nil
		want := append(runs.Letters(50), strings.Repeat("x", mostCopied+1), "", "end")
		p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("before")})
		m := p.tcpRun(want...)
		p.c.Send(&msg.Msg{SPort: 5, DPort: 6, Data: []byte("behind")})
		if i := p.c.Info(); i.Queued != 55 {
			t.Errorf("%d queued", i.Queued)
		}
		for range 30_000 {
			s.room = room
			p.c.HandleRoom(p.now, 0)
			if !p.c.NeedFlush() {
				break
			}
			p.c.Flush(p.now)
		}
		if got := p.messages(s.out, 101); !slices.Equal(got, slices.Concat([]string{"before"}, want, []string{"behind"})) {
			t.Fatalf("room of %d: %d messages: %.100q", room, len(got), got)
		}
		p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, ""))
		if !slices.Equal(p.done, []msg.Outcome{msg.Acked, msg.Acked, msg.Acked}) || m.Ended != 53 || p.c.cuts.N != 0 || p.c.cuts.Runs != nil {
			t.Errorf("outcomes %v, %d ended, %d parts left", p.done, m.Ended, p.c.cuts.N)
		}
		if st := p.c.Stats(); st.SendQueued != 55 {
			t.Errorf("%d passed to Send", st.SendQueued)
		}
	}
}

// TestTCPRunBreaks: of a run whose connection broke only what the peer's TCP had not
// acked goes again, in order.
func TestTCPRunBreaks(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, _, _ := p.accept(40000)
	s.out = nil
	want := runs.Letters(300)
	m := p.tcpRun(want...)
	s.unackedAll = true
	s.room = 10_000
	p.c.Flush(p.now)
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, "")) // its RDS reads
	s.unacked = 3000
	p.run(30)
	acked := m.Track.Cut.Acked
	if acked < 10 || len(p.done) != 0 {
		t.Fatalf("%d acked, %v", acked, p.done)
	}
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	s, _, err := p.accept(40001)
	if err != nil {
		t.Fatal(err)
	}
	p.run(5)
	if got := p.messages(s.out, 101+uint64(acked)); !slices.Equal(got, want[acked:]) {
		t.Errorf("%d messages: %.100q", len(got), got)
	}
	p.c.HandleData(p.now, 0, tcpFrame(2, 0, 1, 0, ""))
	if !slices.Equal(p.done, []msg.Outcome{msg.Acked}) || m.Ended != 300 {
		t.Errorf("outcomes %v, %d ended", p.done, m.Ended)
	}
}

// TestTCPRunCancelled: what is half written follows, and what was acked is told.
func TestTCPRunCancelled(t *testing.T) {
	for name, cancel := range map[string]func(p *tcpPuppet, m *msg.Msg){
		"Cancel": func(p *tcpPuppet, m *msg.Msg) { p.c.Cancel(m, msg.GaveUp) },
		"GiveUp": func(p *tcpPuppet, m *msg.Msg) { p.c.GiveUp(m) },
		"CancelMatching": func(p *tcpPuppet, m *msg.Msg) {
			p.c.CancelMatching(func(o *msg.Msg) bool { return o == m }, msg.GaveUp)
		},
	} {
		p := newTCPPuppet(t, false)
		s, _, _ := p.accept(40000)
		p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, ""))
		s.out = nil
		m, next := p.tcpRun("one", strings.Repeat("x", 30_000), "three"), p.tcpRun("a", "b")
		s.room, s.unacked = 1000, 900
		p.c.Flush(p.now)
		p.run(30)
		cancel(p, m)
		if len(p.done) != 0 {
			t.Errorf("%s: %v while half of one is written", name, p.done)
		}
		s.room, s.unacked = -1, 0
		p.c.HandleRoom(p.now, 0)
		p.run(30)
		if !slices.Equal(p.done, []msg.Outcome{msg.GaveUp, msg.Acked}) || m.Ended != 2 || next.Ended != 2 {
			t.Errorf("%s: outcomes %v, %d and %d ended", name, p.done, m.Ended, next.Ended)
		}
		if hs := p.frames(s.out); len(hs) != 4 || hs[2].Seq != 104 {
			t.Errorf("%s: %+v", name, hs)
		}
		p.tcpRun("c", "d")
		s.room = 60
		p.c.Flush(p.now)
		p.c.Close(p.now)
		s.room = -1
		p.c.HandleRoom(p.now, 0)
		p.c.HandleClosed(p.now, 0, nil)
		if len(p.done) != 3 || p.done[2] != msg.Cancelled || p.c.cuts.N != 0 || p.c.cuts.Runs != nil {
			t.Errorf("%s: outcomes %v, %d parts left", name, p.done, p.c.cuts.N)
		}
	}
}

// TestTCPRunLost: what was sent of a run to the peer's former life is lost, with what is
// left of the run.
func TestTCPRunLost(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, _, _ := p.accept(40000)
	gen := func(g byte) []byte { return tcpFrame(1, 1, 0, 0, "", 5, 0, 1, 6, 0, 0, 0, g) }
	p.c.HandleData(p.now, 0, gen(1))
	p.run(2)
	s.out = nil
	m, next := p.tcpRun("one", "two", "three"), p.tcpRun("a", "b")
	s.room, s.unacked = 102, 50
	p.c.Flush(p.now)
	p.run(30)
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	s = &puppetStream{room: 0}
	if _, err := p.c.HandleAccept(p.now, s, 40001); err != nil {
		t.Fatal(err)
	}
	p.c.HandleData(p.now, 0, gen(2))
	if !slices.Equal(p.done, []msg.Outcome{msg.Lost}) || m.Ended != 2 || p.c.Stats().Lost != 2 {
		t.Errorf("outcomes %v, %d ended, %d lost", p.done, m.Ended, p.c.Stats().Lost)
	}
	s.room = -1
	p.c.HandleRoom(p.now, 0)
	p.run(30)
	if len(p.done) != 2 || p.done[1] != msg.Acked || next.Ended != 2 {
		t.Errorf("outcomes %v", p.done)
	}
}

// TestTCPRunBound: the parts of runs that are not acked are bounded; and a run that its
// sender writes to is as many datagrams as it said.
func TestTCPRunBound(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, _, _ := p.accept(40000)
	p.c.HandleData(p.now, 0, tcpFrame(1, 0, 1, 0, ""))
	s.out, s.unackedAll = nil, true
	const n = frames.MaxLen / frames.Head
	m := p.tcpRun(make([]string, n)...)
	binary.LittleEndian.PutUint32(m.Data[5000*frames.Head:], 1<<31)
	for range 100 {
		if p.run(1); p.c.cuts.N > msg.MaxParts {
			t.Fatalf("%d parts", p.c.cuts.N)
		}
		if len(p.done) > 0 {
			break
		}
		if p.c.cuts.Full() && p.c.NeedFlush() {
			t.Fatal("it wants to write what has to wait")
		}
		s.unacked = 0
		p.run(25)
	}
	if !slices.Equal(p.done, []msg.Outcome{msg.Acked}) || m.Ended != n || len(p.messages(s.out, 101)) != n {
		t.Errorf("outcomes %v, %d ended", p.done, m.Ended)
	}
}
