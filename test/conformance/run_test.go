package conformance

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

func groupM() []statement {
	return []statement{
		{n: 193, kind: "r", by: byPeer, text: "datagrams of a run have one header, with flag 08, extension 0f, their number, and one sequence; each is a length, payload and zeros to a multiple of 4", check: runForm},
		{n: 194, kind: "r", by: byPeer, text: "a long payload, a cookie and a ping are in no run; datagrams before and behind them keep their order", check: notInRun},
		{n: 195, kind: "r", by: byPeer, text: "a run is received as its datagrams, in order, empty ones too, whole and in fragments", check: runIsReceived},
		{n: 196, kind: "r", by: byAPI, text: "the calls are about datagrams: MSG_PEEK leaves one, a short buffer cuts one, a batch arrives as it was sent", check: callsIgnoreRuns},
		{n: 197, kind: "r", by: byPeer, text: "a header that no run can have breaks the connection", check: badRunHeader},
		{n: 198, kind: "r", by: byPeer, text: "a run whose frames are not what its header says is acked and reaches nobody; the connection and other messages go on", check: malformedRun},
		{n: 199, kind: "r", by: byPeer, text: "a run that is sent again is the same run, flagged RETRANSMITTED; a duplicate of one is dropped; both count with their datagrams", check: runSentAgain},
		{n: 200, kind: "r", by: byPeer, text: "a run that finds no socket has one NOSOCK, and counts with its datagrams at both ends", check: runWithoutSocket},
		{n: 201, kind: "r", by: byPeer, text: "a refused run is sent again as a whole, flagged RESUME, and counts with its datagrams at both ends", check: runRefused},
		{n: 202, kind: "r", by: byPeer, text: "a run that is not acked when the peer restarts is lost as a whole, and counts with its datagrams", check: runLost},
		{n: 203, kind: "k", by: byTest, text: "a kernel on IB gets each datagram with a header and a sequence of its own, after a drop too", check: connTest("TestKernelRun", "TestKernelRunBreaks", "TestKernelRunRewritten")},
		{n: 204, kind: "k", by: byTest, text: "a kernel on TCP gets each datagram with a header and a sequence of its own, after a drop too", check: tcpTest("TestTCPRun", "TestTCPRunBreaks")},
	}
}

// datagrams takes a run apart. Each datagram has the header of its run with its own length, and
// without what says that it is of a run. Any other frame stays as it is.
func (p *peer) datagrams(f inFrame) (out []inFrame) {
	p.t.Helper()
	n, ok := f.Run()
	if n == 0 && ok {
		return []inFrame{f}
	}
	if _, whole := frames.Check(f.body, n); !ok || !whole {
		p.t.Fatalf("a run that is none: %+v, %x", f.Header, f.body)
	}
	f.run = n
	f.Flags &^= wire.FlagRun
	f.Ext = [wire.ExtLen]byte{}
	for rest := f.body; len(rest) > 0; f.nth++ {
		f.body, rest, _ = frames.Next(rest)
		f.Len = uint32(len(f.body))
		out = append(out, f)
	}
	return out
}

// batcher is a socket that sends datagrams together.
type batcher struct {
	*rds.Socket
	t *testing.T
}

func (k *kernel) batcher(t *testing.T) batcher {
	t.Helper()
	s, err := k.c.Bind(k.h.at(0))
	ok(t, "bind", err)
	t.Cleanup(func() { _ = s.Close() })
	return batcher{s, t}
}

// batch sends the payloads together. If they are few bytes they are one run, unless they are the
// first to their destination, or the daemon has not taken yet what was sent there before.
func (s batcher) batch(to netip.AddrPort, payloads ...string) {
	s.t.Helper()
	var ms []rds.Message
	for _, p := range payloads {
		ms = append(ms, rds.Message{Addr: to, Payload: []byte(p)})
	}
	n, err := s.SendBatch(context.Background(), ms)
	ok(s.t, "SendBatch", err)
	if n != len(ms) {
		s.t.Fatalf("SendBatch sent %d of %d", n, len(ms))
	}
}

// run takes the next datagrams, which must be these and all of one run. It returns the last one.
func (p *peer) run(payloads ...string) (f inFrame) {
	p.t.Helper()
	for i, want := range payloads {
		if f = p.data(); string(f.body) != want || f.run != len(payloads) || f.nth != i {
			p.t.Fatalf("datagram %d of a run of %d: %q, want %q, %d of %d", f.nth, f.run, f.body, want, i, len(payloads))
		}
	}
	return f
}

// frameRun returns the frames of the payloads.
func frameRun(payloads ...string) (b []byte) {
	for _, p := range payloads {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
		b = append(b, make([]byte, -len(p)&3)...)
	}
	return b
}

// runOf makes a header that of a run of n datagrams, with these flags besides.
func runOf(n int, f wire.Flags) func(*wire.Header) {
	return func(h *wire.Header) {
		h.Flags = f
		h.SetExtRun(n)
	}
}

// sendRun sends the payloads as one run.
func (p *peer) sendRun(to netip.AddrPort, payloads ...string) {
	p.t.Helper()
	p.send(to, frameRun(payloads...), runOf(len(payloads), 0))
}

// sendPieces sends frames as one run, in fragments.
func (p *peer) sendPieces(to netip.AddrPort, n int, b []byte) {
	p.t.Helper()
	h := wire.Header{Seq: p.seq, Len: uint32(len(b)), SPort: 7, DPort: to.Port(), SrcInc: p.inc, DstInc: p.met[way{7, to.Port()}]}
	h.SetExtRun(n)
	p.seq++
	for piece := range slices.Chunk(b, peerSend-wire.HeaderLen) {
		head := make([]byte, wire.HeaderLen)
		h.Put(head)
		p.post(append(head, piece...))
	}
}

// received takes messages from s, which must be these.
func (s *sock) received(payloads ...string) {
	s.t.Helper()
	for i, want := range payloads {
		if g := s.recv(); string(g.data) != want {
			s.t.Errorf("datagram %d: %d bytes %.20q, want %d bytes %.20q", i, len(g.data), g.data, len(want), want)
		}
	}
}

func runForm(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.batcher(t)
	s.batch(p.at(0x1234), "first")
	first := p.run("first")
	payloads := []string{"", "a", "four", "golden", "12345678"}
	s.batch(p.at(0x1234), payloads...)
	last := p.run(payloads...)
	f := p.trace[slices.IndexFunc(p.trace, func(f inFrame) bool { return f.Flags&wire.FlagRun != 0 && f.Seq == last.Seq })]
	if f.raw[24]&^2 != 0x08 || string(f.raw[32:44]) != "\x0f\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00" || int(f.Len) != len(f.body) {
		t.Errorf("header %x", f.raw)
	}
	if want := "\x00\x00\x00\x00" + "\x01\x00\x00\x00a\x00\x00\x00" + "\x04\x00\x00\x00four" +
		"\x06\x00\x00\x00golden\x00\x00" + "\x08\x00\x00\x0012345678"; string(f.body) != want {
		t.Errorf("frames %q, want %q", f.body, want)
	}
	s.batch(p.at(0x1234), "next")
	if g := p.run("next"); last.Seq != first.Seq+1 || g.Seq != last.Seq+1 {
		t.Errorf("sequences %d, %d, %d", first.Seq, last.Seq, g.Seq)
	}
}

func notInRun(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.batcher(t)
	s.batch(p.at(5), "first")
	p.data()
	buf, err := e.ka.c.Alloc(4096)
	ok(t, "Alloc", err)
	region, err := s.Register(buf, 0, 100, rds.AllowWrite)
	ok(t, "Register", err)
	long := strings.Repeat("x", 10_000)
	var ms []rds.Message
	for _, text := range []string{"1", "2", "cookie", "3", "4", long, "5"} {
		ms = append(ms, rds.Message{Addr: p.at(5), Payload: []byte(text)})
	}
	ms[2].Cookie = region.Cookie()
	_, err = s.SendBatch(context.Background(), ms)
	ok(t, "SendBatch", err)
	p.run("1", "2")
	if f := p.data(); string(f.body) != "cookie" || f.run != 0 || f.Ext[0] != 3 {
		t.Errorf("received %q, %+v", f.body, f.Header)
	}
	p.run("3", "4")
	if f := p.data(); string(f.body) != long || f.run != 0 {
		t.Errorf("received %.20q of a run of %d", f.body, f.run)
	}
	p.run("5")
	s.batch(p.at(0), "")
	if f := p.data(); f.DPort != 0 || f.run != 0 {
		t.Errorf("a ping is %+v", f.Header)
	}
}

func runIsReceived(t *testing.T, e *env) {
	p := connected(t, e.a)
	s := e.ka.bound(t)
	before := e.a.counter(t, stats.RecvQueued)
	short := []string{"", "a", strings.Repeat("b", 3001), "", "end"}
	p.sendRun(s.local(), short...)
	p.send(s.local(), []byte("between"))
	var long []string // the peer's runs are not bound to what this daemon sends in one
	for i := range 7 {
		long = append(long, strings.Repeat(string(rune('a'+i)), 9001-i))
	}
	p.sendPieces(s.local(), len(long), frameRun(long...))
	p.sendRun(s.local(), "behind")
	e.a.counted(t, stats.RecvQueued, before, 14)
	s.received(short...)
	s.received("between")
	s.received(long...)
	if g := s.recv(); string(g.data) != "behind" || g.from != p.at(7) {
		t.Errorf("received %q from %v", g.data, g.from)
	}
	s.empty()
}

func callsIgnoreRuns(t *testing.T, e *env) {
	s, to := e.ka.batcher(t), e.kb.bound(t)
	s.batch(to.local(), "one", "", "three", "4")
	for range 2 { // the second datagram is the first of what is left of a run
		to.polled(1)
		g, err := to.recvInto(make([]byte, 100), nil, syscall.MSG_PEEK)
		ok(t, "MSG_PEEK", err)
		r := to.recv()
		if string(g.data) != string(r.data) || g.N != r.N {
			t.Errorf("peeked %q, received %q", g.data, r.data)
		}
	}
	g, err := to.recvInto(make([]byte, 2), nil, 0)
	ok(t, "a short buffer", err)
	if string(g.data) != "th" || g.Flags&syscall.MSG_TRUNC == 0 {
		t.Errorf("received %q with flags %#x", g.data, g.Flags)
	}
	to.received("4")
	to.empty()
	var all []string
	for i := range 500 {
		all = append(all, strings.Repeat(string(rune('a'+i%26)), i*i%5000))
	}
	to.rcvbuf(4 << 20)
	for some := range slices.Chunk(all, 50) {
		s.batch(to.local(), some...)
		to.received(some...)
	}
	to.empty()
}
