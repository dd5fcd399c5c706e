package conformance

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
)

// Statements 197 to 202: runs that are wrong, and how runs end.

func badRunHeader(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	pair := frameRun("a", "b")
	for _, c := range []struct {
		what string
		body []byte
		set  func(*wire.Header)
	}{
		{"no number", pair, flags(wire.FlagRun)},
		{"a run of none", pair, runOf(0, 0)},
		{"a run of 2^32-1", pair, runOf(-1, 0)},
		{"more datagrams than lengths fit", pair, runOf(5, 0)},
		{"no bytes", nil, runOf(1, 0)},
		{"another extension header", pair, func(h *wire.Header) { h.SetExtRun(2); h.Ext[5] = 2 }},
		{"SILENT", pair, runOf(2, wire.FlagSilent)},
		{"INTERNAL", pair, runOf(2, wire.FlagInternal)},
		{"pings", pair, func(h *wire.Header) { h.SetExtRun(2); h.DPort = 0 }},
		{"above 64 KiB", make([]byte, peerSend-wire.HeaderLen), func(h *wire.Header) { h.SetExtRun(2); h.Len = frames.MaxLen + 4 }},
		{"in fragments, more datagrams than lengths fit", make([]byte, peerSend-wire.HeaderLen), func(h *wire.Header) { h.SetExtRun(5001); h.Len = 20_000 }},
	} {
		errs := e.a.counter(t, stats.ProtocolErrors)
		p.send(s.local(), c.body, c.set)
		p.broken(c.what)
		e.a.counted(t, stats.ProtocolErrors, errs, 1)
		p.connect()
	}
	s.empty()
}

func malformedRun(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	bad, errs := e.a.counter(t, stats.RecvDropMalformed), e.a.counter(t, stats.ProtocolErrors)
	queued := e.a.counter(t, stats.RecvQueued)
	p.meet(s.local())
	s.received("first")
	length := func(n uint32, payloads ...string) []byte { // the first frame says that it has n bytes
		b := frameRun(payloads...)
		binary.LittleEndian.PutUint32(b, n)
		return b
	}
	runs := []struct {
		n int
		b []byte
	}{
		{1, frameRun("a", "b")},
		{3, frameRun("a", "b")},
		{2, length(13, "a", "b")},
		{2, length(1<<32-1, "a", "b")},
		{2, length(1<<32-4, "a", "b")},
		{2, append(frameRun("a", "b"), 0, 0, 0, 0)},
		{2, append(frameRun("a", "b"), 0)},
		{2, frameRun("a", "b")[:13]},
		{1, length(30_000, string(make([]byte, 40_000)))},
	}
	for _, r := range runs {
		if len(r.b) > peerSend-wire.HeaderLen {
			p.sendPieces(s.local(), r.n, r.b)
		} else {
			p.send(s.local(), r.b, runOf(r.n, 0))
		}
		p.sendRun(s.local(), "not", "touched")
		s.received("not", "touched")
	}
	p.send(s.local(), []byte("last"), flags(wire.FlagAckRequired))
	s.received("last")
	p.next("an ack", func(f inFrame) bool { return f.Ack == p.seq-1 })
	e.a.counted(t, stats.RecvDropMalformed, bad, uint64(len(runs)))
	if n, m := e.a.counter(t, stats.ProtocolErrors)-errs, e.a.counter(t, stats.RecvDropMalformed)-bad; p.down || n != 0 || m != uint64(len(runs)) {
		t.Errorf("%d protocol errors, %d malformed, down: %v", n, m, p.down)
	}
	e.a.counted(t, stats.RecvQueued, queued, uint64(2*len(runs)+2))
	if n := e.a.counter(t, stats.RecvQueued) - queued; n != uint64(2*len(runs)+2) {
		t.Errorf("%d datagrams are counted as queued", n)
	}
	s.empty()
	for _, f := range p.trace {
		if isInternal(wire.TypeNoSock)(f) || isInternal(wire.TypeRefused)(f) {
			t.Errorf("the sender is notified: %+v", f.Header)
		}
	}
}

func runSentAgain(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	p.mute = true
	s := e.ka.batcher(t)
	s.batch(p.at(5), "first")
	p.accept(p.request())
	p.ack(p.data().Seq)
	payloads := []string{"a", "", "three"}
	s.batch(p.at(5), payloads...)
	f := p.run(payloads...)
	unacked := func(n uint64) {
		t.Helper()
		eventually(t, "unacked", func() error {
			c, _ := e.a.peer(t, p.addr, 0)
			return errOf(c.UnackedMessages != n, "%d messages, want %d", c.UnackedMessages, n)
		})
	}
	unacked(3)
	again := e.a.counter(t, stats.Retransmitted)
	p.drop()
	p.last = f.Seq - 1
	p.accept(p.request())
	if g := p.run(payloads...); g.Seq != f.Seq || g.Flags != wire.FlagRetransmitted|wire.FlagAckRequired {
		t.Errorf("sent again: %+v, first %+v", g.Header, f.Header)
	}
	e.a.counted(t, stats.Retransmitted, again, 3)
	p.mute = false
	p.ack(f.Seq)
	unacked(0)
	// The other way round: the peer sends a run twice.
	to := e.ka.bound(t)
	old := p.seq
	p.sendRun(to.local(), payloads...)
	to.received(payloads...)
	dup := e.a.counter(t, stats.RecvDropOldSeq)
	p.send(to.local(), frameRun(payloads...), seq(old), runOf(3, wire.FlagRetransmitted))
	e.a.counted(t, stats.RecvDropOldSeq, dup, 3)
	if n := e.a.counter(t, stats.RecvDropOldSeq) - dup; n != 3 {
		t.Errorf("%d duplicates", n)
	}
	to.empty()
}

func runWithoutSocket(t *testing.T, e *env) {
	p := connected(t, e.a)
	gone := e.ka.bound(t)
	at := gone.local()
	ok(t, "close", gone.Close())
	dropped := e.a.counter(t, stats.RecvDropNoSock)
	n := p.seq
	p.sendRun(at, "a", "b", "c")
	told, err := wire.ParseNotice(p.next("NOSOCK", isInternal(wire.TypeNoSock)).body)
	if want := (wire.Notice{Seq: n, DPort: at.Port(), SPort: 7, SrcInc: p.inc}); err != nil || told != want {
		t.Errorf("NOSOCK %+v, %v, want %+v", told, err, want)
	}
	e.a.counted(t, stats.RecvDropNoSock, dropped, 3)
	p.quiet("another NOSOCK", isInternal(wire.TypeNoSock))
	if n := e.a.counter(t, stats.RecvDropNoSock) - dropped; n != 3 {
		t.Errorf("%d datagrams are counted", n)
	}
	// The other way round: the peer has no socket for the daemon's run.
	s := e.ka.batcher(t)
	before := e.a.counter(t, stats.NoSockReceived)
	p.mute = true
	s.batch(p.at(5), "first")
	p.data()
	s.batch(p.at(5), "a", "b", "c", "d")
	f := p.run("a", "b", "c", "d")
	p.notice(wire.TypeNoSock, f)
	e.a.counted(t, stats.NoSockReceived, before, 4)
	if n := e.a.counter(t, stats.NoSockReceived) - before; n != 4 {
		t.Errorf("%d datagrams are counted", n)
	}
}

func runLost(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	p.mute = true
	s := e.ka.batcher(t)
	s.batch(p.at(5), "first")
	p.accept(p.request())
	p.ack(p.data().Seq)
	s.batch(p.at(5), "a", "", "c")
	p.run("a", "", "c")
	lost := e.a.counter(t, stats.MsgLost)
	p.drop()
	p.instance++ // another daemon, which has received nothing
	p.last, p.seq = 0, 1000
	p.accept(p.request())
	e.a.counted(t, stats.MsgLost, lost, 3)
	p.quiet("a message that is lost", isData)
	if n := e.a.counter(t, stats.MsgLost) - lost; n != 3 {
		t.Errorf("%d datagrams are lost", n)
	}
}

// notice tells the daemon that a message has been refused, or has found no socket.
func (p *peer) notice(typ wire.InternalType, f inFrame) {
	p.t.Helper()
	p.internal(typ, (&wire.Notice{Seq: f.Seq, DPort: f.DPort, SPort: f.SPort, SrcInc: f.SrcInc}).Append(nil))
}

func runRefused(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.batcher(t)
	s.batch(p.at(5), "first") // its BOUND is the peer's
	p.data()
	p.mute = true
	payloads := []string{"a", "", "three"}
	s.batch(p.at(5), payloads...)
	f := p.run(payloads...)
	before := e.a.counter(t, stats.RefusedReceived)
	p.tell(5)
	p.notice(wire.TypeRefused, f)
	e.a.counted(t, stats.RefusedReceived, before, 3)
	p.quiet("a message to a port that refuses", isData)
	if c, _ := e.a.peer(t, p.addr, 0); c.QueuedMessages != 3 {
		t.Errorf("%d messages wait", c.QueuedMessages)
	}
	p.mute = false
	p.tell()
	again := slices.Clone(payloads)
	if g := p.run(again...); g.Seq <= f.Seq || g.Flags&^wire.FlagAckRequired != wire.FlagResume {
		t.Errorf("sent again: %+v", g.Header)
	}
	if n := e.a.counter(t, stats.RefusedReceived) - before; n != 3 {
		t.Errorf("%d datagrams are counted", n)
	}
	// The test shows the other end: a run that this daemon refuses.
	goTest(t, "../../conn", "TestRunReceived")
}
