package conn

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// sendRun sends a run of the payloads as s.msg sends a datagram.
func (s *script) sendRun(payloads ...string) *msg.Msg {
	m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: runs.Of(payloads...), Run: len(payloads)}
	for _, p := range payloads {
		m.Payload += len(p)
	}
	s.c.Send(m)
	return m
}

// runOf says in a header that the message is a run of n datagrams.
func runOf(n int) func(*wire.Header) { return func(h *wire.Header) { h.SetExtRun(n) } }

// TestRunSent: a run is one message with one header, and every count is of its
// datagrams.
func TestRunSent(t *testing.T) {
	s := newScript(t).up()
	s.msg("first") // asks for an ack
	m := s.sendRun("a", "", "four", strings.Repeat("x", 1001))
	if i := s.c.Info(); i.Queued != 5 || s.c.Stats().SendQueued != 5 {
		t.Errorf("%d queued, %d passed to Send", i.Queued, s.c.Stats().SendQueued)
	}
	s.run()
	f := s.frames()
	if len(f) != 2 {
		t.Fatalf("%d frames", len(f))
	}
	if n, ok := f[1].Run(); n != 4 || !ok || f[1].Seq != 101 || f[1].Flags != wire.FlagRun || !bytes.Equal(f[1].body, m.Data) {
		t.Errorf("%+v", f[1])
	}
	st := s.c.Stats()
	if i := s.c.Info(); st.SendMsgs != 5 || st.SendBytes != 5+1006 || i.Unacked != 5 || i.Queued != 0 {
		t.Errorf("%d messages of %d bytes sent, %d not acked, %d queued", st.SendMsgs, st.SendBytes, i.Unacked, i.Queued)
	}
	s.send(frame(wire.Header{Ack: 101}, nil))
	s.want(m, msg.Acked)
}

// TestRunInPieces: a run that does not fit a SEND travels as any long message.
func TestRunInPieces(t *testing.T) {
	s := newScript(t).up()
	m := s.sendRun(strings.Repeat("x", 9000), strings.Repeat("y", 9000))
	s.run()
	var all []byte
	for _, f := range s.frames() {
		if n, ok := f.Run(); n != 2 || !ok || f.Seq != 100 {
			t.Errorf("%+v", f.Header)
		}
		all = append(all, f.body...)
	}
	if !bytes.Equal(all, m.Data) {
		t.Errorf("%d bytes, want %d", len(all), len(m.Data))
	}
	if st := s.c.Stats(); st.SendMsgs != 2 || st.SendBytes != 18_000 {
		t.Errorf("%d messages of %d bytes", st.SendMsgs, st.SendBytes)
	}
}

// TestRunEnds: a run that is refused, finds no socket or is lost is so as a whole, and
// is counted by its datagrams.
func TestRunEnds(t *testing.T) {
	s := newScript(t).up()
	refused, nobody := s.sendRun("a", "b", "c"), s.sendRun("d", "e")
	s.run()
	s.skip()
	s.cong(4)
	s.send(s.notice(wire.TypeRefused, 100, 4))
	s.send(s.notice(wire.TypeNoSock, 101, 4))
	s.open(refused)
	s.want(nobody, msg.NoSock)
	st := s.c.Stats()
	if i := s.c.Info(); st.Refusals != 3 || st.NoSock != 2 || i.Stopped != 3 || i.Queued != 3 {
		t.Errorf("%d refused, %d without a socket, %d wait", st.Refusals, st.NoSock, i.Stopped)
	}
	s.frames()
	s.cong()
	f := s.frames()
	if len(f) != 1 || f[0].Flags&^wire.FlagAckRequired != wire.FlagRun|wire.FlagResume || f[0].Seq != 102 {
		t.Fatalf("%+v", f)
	}
	s.again()
	if st.Retransmitted != 3 {
		t.Errorf("%d sent again", st.Retransmitted)
	}
	s.again(func(h *wire.Hello) { h.Instance = 78 })
	s.want(refused, msg.Lost)
	if st.Lost != 3 {
		t.Errorf("%d lost, want 3", st.Lost)
	}
}

// TestRunAsks: runs ask for acks as often as their datagrams would.
func TestRunAsks(t *testing.T) {
	for _, n := range []int{1, 2, 5, 9, 100} {
		s := newScript(t).up()
		for range 40 {
			s.sendRun(make([]string, n)...)
		}
		s.run()
		since, most := 0, 0 // datagrams that no ack was asked for
		for i, f := range s.frames() {
			if f.Flags&wire.FlagAckRequired == 0 {
				since += n
				most = max(most, since)
				continue
			}
			if i > 0 && since+n <= askEvery {
				t.Errorf("runs of %d: one asks %d datagrams behind the last", n, since)
			}
			since = 0
		}
		if most > askEvery {
			t.Errorf("runs of %d: %d datagrams without an ack asked for", n, most)
		}
	}
}

// TestRunReceived: a run is handed up, refused, sent back and dropped as one message,
// whole or in pieces, and counted as its datagrams.
func TestRunReceived(t *testing.T) {
	s := newScript(t).up()
	run := string(runs.Of("a", "", "four"))
	st := s.c.Stats()
	s.send(s.data(run, runOf(3)))
	if n, ok := s.headers[0].Run(); len(s.delivered) != 1 || s.delivered[0] != run || n != 3 || !ok {
		t.Fatalf("%q with %+v", s.delivered, s.headers)
	}
	s.send(s.data(run, runOf(3), func(h *wire.Header) { h.Seq, h.Flags = s.seq-1, h.Flags|wire.FlagRetransmitted }))
	long := string(runs.Of(strings.Repeat("x", 9000), strings.Repeat("y", 9000)))
	s.seq++
	h := wire.Header{Seq: s.seq, Len: uint32(len(long)), SPort: 7, DPort: 9}
	h.SetExtRun(2)
	s.post(frame(h, []byte(long[:16<<10-48])))
	s.post(frame(h, []byte(long[16<<10-48:])))
	s.run()
	if len(s.delivered) != 2 || s.delivered[1] != long {
		t.Errorf("%d delivered", len(s.delivered))
	}
	if st.RecvQueued != 5 || st.RecvBytes != 5+18_000 || st.RecvDropOldSeq != 3 {
		t.Errorf("%d messages of %d bytes, %d duplicates", st.RecvQueued, st.RecvBytes, st.RecvDropOldSeq)
	}
	s.verdict = func(*wire.Header) Verdict { return NoSocket }
	s.send(s.data(run, runOf(3)))
	s.verdict = func(*wire.Header) Verdict { return Refused }
	s.send(s.data(run, runOf(3)))
	s.verdict = nil
	s.send(s.data(run, runOf(3))) // behind the refused one
	if st.RecvDropNoSock != 3 || st.RecvRefused != 6 || len(s.delivered) != 2 {
		t.Errorf("%d without a socket, %d refused, %d delivered", st.RecvDropNoSock, st.RecvRefused, len(s.delivered))
	}
	if a := s.c.TakeArrived(); a.Messages != 14 {
		t.Errorf("%d messages have arrived", a.Messages)
	}
}

// TestRunMalformed: a header that cannot be that of a run breaks the connection off,
// before the host hears of the message.
func TestRunMalformed(t *testing.T) {
	pair := runs.Of("a", "b")
	bare := func(h *wire.Header) { h.Flags |= wire.FlagRun }
	for _, c := range []struct {
		name   string
		body   []byte
		change []func(*wire.Header)
		text   string
	}{
		{"no count", pair, []func(*wire.Header){bare}, "how many"},
		{"none", pair, []func(*wire.Header){runOf(0)}, "how many"},
		{"negative", pair, []func(*wire.Header){runOf(-1)}, "datagrams in"},
		{"more than fit", pair, []func(*wire.Header){runOf(5)}, "of 5 datagrams in 16 bytes"},
		{"empty", nil, []func(*wire.Header){runOf(1)}, "of 1 datagrams in 0 bytes"},
		{"with a cookie", pair, []func(*wire.Header){runOf(2), func(h *wire.Header) { h.Ext[5] = 3 }}, "how many"},
		{"silent", pair, []func(*wire.Header){runOf(2), flags(wire.FlagSilent)}, "with flags"},
		{"internal", pair, []func(*wire.Header){runOf(2), flags(wire.FlagInternal)}, "with flags"},
		{"congestion", pair, []func(*wire.Header){runOf(2), flags(wire.FlagCong)}, "congestion frame"},
		{"pings", pair, []func(*wire.Header){runOf(2), port(0)}, "pings"},
		{"long", make([]byte, 16<<10-48), []func(*wire.Header){runOf(2), func(h *wire.Header) { h.Len = frames.MaxLen + 4 }}, "at most"},
		{"more than fit, in pieces", make([]byte, 16<<10-48), []func(*wire.Header){runOf(5001), func(h *wire.Header) { h.Len = 20_000 }}, "datagrams in 20000"},
	} {
		s := newScript(t).up()
		s.verdict = func(*wire.Header) Verdict { t.Errorf("%s: handed up", c.name); return Accepted }
		s.send(s.data(string(c.body), c.change...))
		s.wantError(ErrProtocol)
		if err := s.c.Info().LastError; err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
	}
	// What the frames are is the host's to look at.
	s := newScript(t).up()
	bad := bytes.Clone(pair)
	binary.LittleEndian.PutUint32(bad, 1<<31)
	s.send(s.data(string(bad), runOf(2)))
	if len(s.delivered) != 1 || !s.c.Ready() {
		t.Errorf("%d delivered, %v", len(s.delivered), s.c.State())
	}
}
