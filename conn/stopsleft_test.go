package conn

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/handover"
)

// TestStopUnwanted: a port that refuses is a reason to connect while a message waits for it,
// here or at the host. If that is withdrawn, an idle connection stays down, and may be dropped.
func TestStopUnwanted(t *testing.T) {
	for _, later := range []bool{false, true} {
		s := newScript(t).up()
		m := s.msg("refused")
		s.run()
		s.cong(4)
		s.send(s.notice(wire.TypeRefused, 100, 4))
		if later {
			s.msg("waits")
		}
		s.c.Cancel(m, msg.Cancelled)
		s.run()
		s.q.toErr(true)
		s.run()
		s.dropRequests()
		s.now += s.c.cfg.MaxBackoff
		s.c.Tick(s.now)
		if _, idle := s.c.IdleSince(); idle == later || (s.c.State() == Connecting) != later {
			t.Errorf("a message waits at the host %v: %v, idle %v", later, s.c.State(), idle)
		}
		if _, ok := s.c.Past(); ok == later {
			t.Errorf("a message waits at the host %v: may be dropped %v", later, ok)
		}
	}
}

// TestAdoptQueuedForStopped: a former version has messages in its queue for a port that refuses.
// They are sent behind what was refused, in order.
func TestAdoptQueuedForStopped(t *testing.T) {
	s := newScript(t).up()
	ms := []*msg.Msg{s.msg("a")}
	s.run()
	s.frames()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, 100, 4))
	for _, text := range []string{"b", "c", "other", "d"} {
		m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte(text)}
		if text == "other" {
			m.DPort = 5
		}
		ms = append(ms, m)
		s.c.Send(m)
	}
	s.c.Halt(s.now)
	for s.c.State() != Down {
		s.run()
	}
	state, err := s.c.Encode(handover.Oldest, func(m *msg.Msg) uint32 {
		for i := range ms {
			if ms[i] == m {
				return uint32(i)
			}
		}
		t.Fatal("another message")
		return 0
	})
	if err != nil {
		t.Fatal(err)
	}
	s.c = New(s.c.cfg, s)
	if err := s.c.Adopt(state, func(n uint32) *msg.Msg {
		m := *ms[n]
		m.Track = msg.Track{}
		ms[n] = &m
		return &m
	}); err != nil {
		t.Fatal(err)
	}
	s.c.Resume(s.now)
	s.dropRequests()
	s.up(func(h *wire.Hello) { h.Ack = 100 })
	s.run()
	s.cong()
	s.run()
	s.resend(s.c)
	s.run()
	var text []string
	for _, f := range s.frames() {
		text = append(text, string(f.body))
	}
	if got := strings.Join(text, " "); got != "other a b c d" {
		t.Errorf("sent %q", got)
	}
	if l := &s.c.out.queue; l.Again != 0 {
		t.Errorf("an empty queue counts %d", l.Again)
	}
}

// TestKernelRunAgain: what is left of a run in the queue was posted since it was put there.
func TestKernelRunAgain(t *testing.T) {
	s := newKernel(t)
	s.sendRun("a", "b", "c")
	s.run()
	if l := &s.c.out.queue; l.N != 0 || l.Again != 0 {
		t.Errorf("%d messages wait, work of %d was done before", l.N, l.Again)
	}
}

// TestStopsNotWalked: what one port refuses and lets go of costs no look at the others that have
// refused.
func TestStopsNotWalked(t *testing.T) {
	s := newScript(t).up()
	const others, n = 1000, 100
	var full []uint16
	for p := range uint16(others) { // their messages were withdrawn
		st := s.c.stops.add(100 + p)
		st.stopped, st.keeps = true, true
		full = append(full, 100+p)
	}
	for range n {
		s.msg("x")
	}
	s.run()
	seq := s.c.out.unacked.Head.Track.Seq
	s.cong(append(full, 4)...)
	before := s.c.stops.walked
	for i := range uint64(n) {
		s.send(s.notice(wire.TypeRefused, seq+i, 4))
	}
	refused := s.c.stops.walked - before
	s.cong(full...)
	if let := s.c.stops.walked - before - refused; refused > 2*n || let > 2*n {
		t.Errorf("%d looks when %d were refused, %d when they were let go of", refused, n, let)
	}
	if got := len(s.frames()); got < n || s.c.Stopped(4) || len(s.c.stops.list) != others {
		t.Errorf("%d frames, %d ports are stopped", got, len(s.c.stops.list))
	}
}

// TestStopsManyPorts: a port that refuses costs a look at what is for it, and none at what is for others.
func TestStopsManyPorts(t *testing.T) {
	const n, queued = 3000, 200
	s := newScript(t).up(func(h *wire.Hello) { h.MaxSend, h.Credits = 32<<10, 1000 })
	ms := make([]msg.Msg, n)
	for i := range ms {
		ms[i] = msg.Msg{SPort: 3, DPort: uint16(i + 10), SrcInc: 5}
		s.c.Send(&ms[i])
	}
	s.run()
	s.frames()
	seq := s.c.out.unacked.Head.Track.Seq
	s.credits(0)
	for i := range uint16(queued) { // of which some go to ports that refuse
		s.c.Send(&msg.Msg{SPort: 3, DPort: n - queued/2 + i + 10, SrcInc: 5})
	}
	s.cong(10) // all the others are free, and what is let go of has no credit
	s.c.stops.ports.Walked, s.c.stops.walked = 0, 0
	for i := uint64(0); i < n; { // in few SENDs, for each needs a credit
		var fs [][]byte
		for ; i < n && len(fs) < 300; i++ {
			fs = append(fs, s.notice(wire.TypeRefused, seq+i, uint16(i+10)))
		}
		s.send(fs...)
	}
	if i := s.c.Info(); i.Stopped != n-keepsWindow/msg.FrameWork {
		t.Errorf("%d messages are kept of %d", i.Stopped, n)
	}
	if walked := s.c.stops.walked + s.c.stops.ports.Walked; walked < n || walked > 4*n+2*queued || len(s.away) != queued/2 {
		t.Errorf("%d looks when %d ports refused a message each, %d messages given back", walked, n, len(s.away))
	}
}
