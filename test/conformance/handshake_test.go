package conformance

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/afrds"
	"github.com/rdsd/rdsd/cmsg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
)

func groupH() []statement {
	return []statement{
		{n: 131, kind: "k", by: byPeer, text: "a ping to port 0 is answered from port 0 to its port, empty; its payload is not echoed", check: pingIsAnswered},
		{n: 132, kind: "k", by: byPeer, text: "a ping from port 0 is not answered; with pings off none is, and recv_drop_no_sock rises", check: pingNotAnswered},
		{n: 133, kind: "k", later: laterVM, text: "rds-ping between a kernel host and rdsd, 0 % loss in 1000"},
		{n: 134, kind: "r", by: byCalls, text: "a ping between two local addresses of one host is answered", check: pingOnOneHost},
		{n: 135, kind: "k", by: byCodec, text: "a probe from port 1 with NPATHS 8 is answered to port 1 with NPATHS; none means 1", check: pathProbeIsAnswered},
		{n: 136, kind: "r", by: byCodec, text: "NPATHS of 0, above 8 or no power of two is clamped", check: pathCountIsClamped},
		{n: 137, kind: "k", by: byPeer, text: "no probe from port 1 is ever sent on IB", check: noProbeOnIB},
		{n: 138, kind: "k", by: byPeer, text: "the first message has ACK_REQUIRED, then every 9th while not all are acked; retransmissions always", check: ackRequiredPattern},
		{n: 139, kind: "k", by: byPeer, text: "a frame with ACK_REQUIRED is acked at once, without reverse traffic", check: requiredAckAtOnce},
		{n: 140, kind: "k", by: byPeer, text: "an ack frame has ports 0, length 48, sequence 0, the right h_ack; it is not delivered and not acked", check: ackFrameForm},
		{n: 141, kind: "k", by: byPeer, text: "data frames carry the latest ack", check: dataCarriesAck},
		{n: 142, kind: "k", by: byPeer, text: "an older ack is ignored; one beyond what was sent frees nothing", check: oldAckIsIgnored},
	}
}

func pingIsAnswered(t *testing.T, e *env) {
	p := connected(t, e.a)
	before := e.a.counter(t, stats.RecvPing)
	p.send(e.a.at(0), []byte("echo?"), func(h *wire.Header) { h.SPort = 0x777 })
	f := p.data()
	if f.SPort != 0 || f.DPort != 0x777 || f.Len != 0 || len(f.body) != 0 {
		t.Errorf("answer %+v", f.Header)
	}
	e.a.counted(t, stats.RecvPing, before, 1)
	// A ping of a socket to the other daemon.
	s := e.ka.bound(t)
	s.mustSend([]byte("echo?"), e.b.at(0))
	if g := s.recv(); g.N != 0 || g.from != e.b.at(0) {
		t.Errorf("%d bytes from %v", g.N, g.from)
	}
}

func pingNotAnswered(t *testing.T, e *env) {
	p := connected(t, e.a)
	p.send(e.a.at(0), nil, func(h *wire.Header) { h.SPort = 0 })
	p.quiet("an answer to port 0", isData)
	off := newHost(t, nil, "-ping", "ignore")
	q := connected(t, off)
	before := off.counter(t, stats.RecvDropNoSock)
	q.send(off.at(0), nil)
	off.counted(t, stats.RecvDropNoSock, before, 1)
	q.quiet("an answer of a daemon with pings off", isData)
	if n := off.counter(t, stats.RecvPing); n != 0 {
		t.Errorf("%d pings were answered", n)
	}
}

func pingOnOneHost(t *testing.T, e *env) {
	s := e.ka.bound(t)
	for _, to := range e.a.addrs {
		at := netip.AddrPortFrom(to, 0)
		s.mustSend(nil, at)
		if g := s.recv(); g.from != at || g.N != 0 {
			t.Errorf("ping of %v: %d bytes from %v", to, g.N, g.from)
		}
	}
}

func pathProbeIsAnswered(t *testing.T, e *env) {
	var probe, answer wire.Header
	probe = wire.Header{Seq: 1, SPort: wire.ProbePort}
	probe.SetExtPaths(8)
	b := make([]byte, wire.HeaderLen)
	probe.PutTCP(b)
	var got wire.Header
	if err := wire.ParseTCP(b, &got); err != nil || !got.IsProbe() || got.Paths() != 8 {
		t.Errorf("probe %+v, %v", got, err)
	}
	answer.Answer(&got, 7)
	answer.PutTCP(b)
	if b[21]|b[20] != 0 || b[22] != 0 || b[23] != 1 || b[32] != 5 || b[33] != 0 || b[34] != 8 {
		t.Errorf("answer %x", b)
	}
	if n := (&wire.Header{SPort: 1}).Paths(); n != 1 {
		t.Errorf("no NPATHS is %d", n)
	}
}

func pathCountIsClamped(t *testing.T, e *env) {
	for n := range 1 << 16 {
		var h wire.Header
		h.SetExtPaths(uint16(n))
		got := h.Paths()
		if got < 1 || got > wire.MaxPaths || got&(got-1) != 0 || got > max(n, 1) {
			t.Fatalf("%d is %d", n, got)
		}
	}
}

func noProbeOnIB(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	s := e.ka.bound(t)
	s.mustSend([]byte("x"), p.at(5))
	p.accept(p.request())
	for range 20 {
		s.mustSend([]byte("x"), p.at(5))
		p.data()
	}
	p.quiet("a probe", func(f inFrame) bool { return f.SPort == 1 })
	for _, f := range p.trace {
		if f.SPort == wire.ProbePort {
			t.Errorf("frame %+v", f.Header)
		}
	}
}

func ackRequiredPattern(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	s := e.ka.bound(t)
	const n = 40
	s.mustSend([]byte{0}, p.at(5))
	p.accept(p.request())
	asks := func(f inFrame) bool { return f.Flags&wire.FlagAckRequired != 0 }
	p.mute = true // the count starts anew when all is acked
	for i := range n {
		if i > 0 {
			s.mustSend([]byte{byte(i)}, p.at(5))
		}
		if f := p.data(); asks(f) != (i%9 == 0) {
			t.Errorf("message %d: flags %#x", i, f.Flags)
		}
	}
	for i := range 5 {
		s.mustSend([]byte{byte(i)}, p.at(5))
		p.data()
	}
	first := p.last - 4
	p.drop()
	p.last = first - 1
	p.accept(p.request())
	for i := range 5 {
		if f := p.data(); f.Flags&wire.FlagRetransmitted == 0 || !asks(f) {
			t.Errorf("retransmission %d: flags %#x", i, f.Flags)
		}
	}
}

func requiredAckAtOnce(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.meet(s.local())
	p.send(s.local(), []byte("x"), flags(wire.FlagAckRequired))
	p.next("an ack", func(f inFrame) bool { return isAck(f) && f.Ack == p.seq-1 })
	before := e.a.counter(t, stats.RecvAckRequired)
	p.send(s.local(), []byte("x"), flags(wire.FlagAckRequired))
	p.next("an ack", func(f inFrame) bool { return isAck(f) && f.Ack == p.seq-1 })
	e.a.counted(t, stats.RecvAckRequired, before, 1)
	// The test shows in virtual time that the ack comes at once, and not by a timer.
	goTest(t, "../../conn", "TestAcks")
}

func ackFrameForm(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	p.meet(s.local())
	s.recv()
	p.send(s.local(), []byte("x"), flags(wire.FlagAckRequired))
	f := p.next("an ack", func(f inFrame) bool { return f.Ack == p.seq-1 })
	if len(f.raw) != 48 || len(f.body) != 0 || f.Seq != 0 || f.SPort != 0 || f.DPort != 0 || f.Len != 0 || f.Flags != 0 {
		t.Errorf("ack frame %+v with %d bytes", f.Header, len(f.body))
	}
	s.recv()
	noSock := e.a.counter(t, stats.RecvDropNoSock)
	pings := e.a.counter(t, stats.RecvPing)
	s.mustSend([]byte("first"), p.at(5))
	p.data()
	s.mustSend([]byte("y"), p.at(5))
	p.ack(p.data().Seq)
	eventually(t, "the ack", func() error {
		c, _ := e.a.peer(t, p.addr, 0)
		return errOf(c.UnackedMessages != 0, "%d messages unacked", c.UnackedMessages)
	})
	p.quiet("an answer to an ack", func(f inFrame) bool { return true })
	s.empty()
	if a, b := e.a.counter(t, stats.RecvDropNoSock), e.a.counter(t, stats.RecvPing); a != noSock || b != pings {
		t.Errorf("an ack was looked at as a message: %d, %d", a-noSock, b-pings)
	}
}

func dataCarriesAck(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	for range 10 {
		sent := p.seq
		p.send(s.local(), []byte("x"))
		g := s.recv()
		s.mustSend([]byte("y"), g.from)
		if f := p.data(); f.Ack != sent {
			t.Errorf("ack %d in a frame behind %d", f.Ack, sent)
		}
	}
}

func oldAckIsIgnored(t *testing.T, e *env) {
	p := newPeer(t, e.a)
	p.listen()
	p.mute = true
	s := e.ka.bound(t)
	s.sndbuf(3000)
	s.mustSend(make([]byte, 1000), p.at(5))
	p.accept(p.request())
	first := p.data().Seq
	unacked := func(want uint64) {
		t.Helper()
		eventually(t, "unacked", func() error {
			c, _ := e.a.peer(t, p.addr, 0)
			return errOf(c.UnackedMessages != want, "%d messages, want %d", c.UnackedMessages, want)
		})
	}
	for range 2 {
		s.mustSend(make([]byte, 1000), p.at(5))
		p.data()
	}
	want(t, "full", s.send([]byte("x"), p.at(5)), syscall.EAGAIN)
	p.ack(first + 1)
	unacked(1)
	p.ack(first) // an older ack
	s.polled(afrds.PollOut)
	s.mustSend(make([]byte, 1000), p.at(5))
	p.data()
	unacked(2)
	// An ack of more than was sent breaks a connection between two rdsd.
	errs := e.a.counter(t, stats.ProtocolErrors)
	p.ack(first + 1000)
	p.until("broken off", func() bool { return p.down })
	e.a.counted(t, stats.ProtocolErrors, errs, 1)
	if si, _ := e.a.socket(t, s.local()); si.SendBytes != 2000 {
		t.Errorf("%d bytes are queued", si.SendBytes)
	}
	s.set(cmsg.SOLRDS, cmsg.OptCancelSentTo, afrds.Sockaddr(p.at(6))) // other messages than those in progress
	p.last = first + 1
	p.accept(p.request())
	for i := range uint64(2) {
		if f := p.data(); f.Seq != first+2+i || f.Len != 1000 {
			t.Errorf("sent again: %+v", f.Header)
		}
	}
	p.ack(first + 3)
	unacked(0)
	s.polled(afrds.PollOut)
}
