package conn

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// A script is one Conn and a peer that is a bare queue pair: the test writes and reads its frames.
type script struct {
	*baseHost
	t    *testing.T
	c    *Conn
	peer *fakeHost
	q    *fakeQP // the peer's, once connected
	mem  []byte  // the peer's
	key  uint32
	now  int64
	raw  [][]byte // SENDs the peer received
	how  []verbs.SendFlags

	seq            uint64 // the peer's last
	delivered      []string
	headers        []wire.Header
	parents        []*wire.Traceparent
	verdict        func(h *wire.Header) Verdict
	done           map[*msg.Msg]msg.Outcome
	local          map[*msg.Msg]bool
	placed, refuse map[*msg.Msg]bool
	internals      []wire.InternalType
	ups            []bool
	downs          []error
	congs          int
	met            uint32 // the socket that takes what is delivered
	bounds         []bound
	part           []byte
	aborts         int
	hold           bool   // the Conn's requests stay posted
	onDone         func() // in MsgDone
}

func newScript(t *testing.T, change ...func(*Config)) *script {
	n := newFakeNet(1)
	s := &script{t: t, peer: n.host(addrB), now: 1e9, done: map[*msg.Msg]msg.Outcome{}, local: map[*msg.Msg]bool{}, placed: map[*msg.Msg]bool{}, refuse: map[*msg.Msg]bool{}}
	s.baseHost = newBaseHost(n.host(addrA), 8, 32<<10, 64)
	cfg := testConfig(addrA, addrB, 10)
	cfg.StartSeq = 100
	for _, f := range change {
		f(&cfg)
	}
	s.mem = make([]byte, 1<<20)
	s.key = s.peer.reg(s.mem)
	s.c = New(cfg, s)
	s.seq = 500
	return s
}

func (s *script) Deliver(c *Conn, h *wire.Header, b []byte) (Verdict, uint32) {
	if s.verdict != nil {
		if v := s.verdict(h); v != Accepted {
			return v, 0
		}
	}
	s.took(h, b)
	return Accepted, s.met
}
func (s *script) Begin(c *Conn, h *wire.Header) ([]byte, any, Verdict) {
	if s.verdict != nil {
		if v := s.verdict(h); v != Accepted {
			return nil, nil, v
		}
	}
	s.part = make([]byte, h.Len)
	return s.part, &s.part[0], Accepted
}
func (s *script) Commit(c *Conn, h *wire.Header, token any) uint32 {
	s.took(h, s.part)
	return s.met
}
func (s *script) took(h *wire.Header, b []byte) {
	s.delivered = append(s.delivered, string(b))
	s.headers, s.parents = append(s.headers, *h), append(s.parents, s.c.Traceparent(h))
	if n, _ := h.Run(); n > 0 {
		sum, _ := frames.Check(b, n)
		s.c.TookRun(sum.Bytes)
	}
}
func (s *script) Bound(_ *Conn, m *msg.Msg, inc uint32) { s.bounds = append(s.bounds, bound{m, inc}) }
func (s *script) Abort(*Conn, any)                      { s.aborts++ }
func (s *script) Internal(_ *Conn, t wire.InternalType, body []byte) {
	s.internals = append(s.internals, t)
}
func (s *script) CanPost(_ *Conn, m *msg.Msg) bool { return !s.refuse[m] }
func (s *script) PeerUp(_ *Conn, restarted bool)   { s.ups = append(s.ups, restarted) }
func (s *script) PeerDown(_ *Conn, why error)      { s.downs = append(s.downs, why) }
func (s *script) Congestion(*Conn, *cong.Map)      { s.congs++ }
func (s *script) OpLocal(_ *Conn, m *msg.Msg) {
	if s.local[m] {
		s.t.Error("OpLocal twice")
	}
	s.local[m] = true
}
func (s *script) OpPlaced(_ *Conn, m *msg.Msg) {
	if _, done := s.done[m]; s.placed[m] || s.local[m] || done {
		s.t.Errorf("OpPlaced: placed %v, local %v, done %v", s.placed[m], s.local[m], done)
	}
	s.placed[m] = true
}
func (s *script) MsgDone(_ *Conn, m *msg.Msg, o msg.Outcome) {
	if o == msg.Returned {
		s.returned(m)
		return
	}
	if _, ok := s.done[m]; ok {
		s.t.Error("MsgDone twice")
	}
	if s.done[m] = o; s.onDone != nil {
		s.onDone()
	}
}

// run moves everything until nothing moves. The peer's requests are answered
// by the test.
func (s *script) run() {
	s.t.Helper()
	for i := 0; ; i++ {
		if i > 10000 {
			s.t.Fatal("it never comes to rest")
		}
		moved := false
		for len(s.dev.cm) > 0 {
			ev := s.dev.cm[0]
			s.dev.cm = s.dev.cm[1:]
			if ev.Type == verbs.CMConnectRequest {
				s.c.HandleRequest(s.now, ev.Req, ev.Segment, ev.Private)
			} else {
				s.c.HandleCM(s.now, &ev)
			}
			moved = true
		}
		if s.resend(s.c) || s.c.NeedFlush() {
			s.c.Flush(s.now)
			moved = true
		}
		for _, h := range []*fakeHost{s.dev, s.peer} {
			for _, q := range append([]*fakeQP(nil), h.qps...) {
				for !(s.hold && h == s.dev) && q.toWire() || q.deliver() {
					moved = true
				}
			}
		}
		for len(s.dev.cq) > 0 {
			e := s.dev.cq[0]
			s.dev.cq = s.dev.cq[1:]
			if e.buf != nil || e.wc.Op == verbs.WCRecv {
				s.c.HandleRecv(s.now, &e.wc, e.buf)
			} else {
				s.c.HandleSend(s.now, &e.wc)
			}
			moved = true
		}
		was := s.c.State()
		s.c.CQEmpty(s.now)
		moved = moved || was != s.c.State()
		for _, e := range s.peer.cq {
			if e.wc.Op == verbs.WCRecv {
				s.raw = append(s.raw, e.buf)
				s.how = append(s.how, e.how)
			}
		}
		s.peer.cq = nil
		if !moved {
			return
		}
	}
}

func (s *script) private() []byte {
	return wire.AppendPrivate(nil, &wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1,
		MinorMask: wire.MinorMask, Ext: wire.ExtVersion})
}

// connect lets the peer dial and complete the CM part; HELLO is the Conn's
// only SEND then.
func (s *script) connect() {
	s.t.Helper()
	s.q = s.peer.newQP(64)
	s.peer.dial(s.q, addrB, addrA, s.private())
	s.run()
	if s.c.State() != Up {
		s.t.Fatalf("state %v after the peer's request: %v", s.c.State(), s.lastTrace)
	}
}

// answer accepts the Conn's own request.
func (s *script) answer() {
	s.t.Helper()
	req := s.request()
	s.q = s.peer.newQP(64)
	s.peer.accept(req, s.q, s.private())
	s.run()
}

func (s *script) request() verbs.RequestID {
	s.t.Helper()
	for i := len(s.peer.cm) - 1; i >= 0; i-- {
		if ev := s.peer.cm[i]; ev.Type == verbs.CMConnectRequest {
			s.peer.cm = s.peer.cm[:i]
			return ev.Req
		}
	}
	s.t.Fatalf("no request from the Conn; state %v", s.c.State())
	return 0
}

func (s *script) helloBody(change ...func(*wire.Hello)) []byte {
	h := wire.Hello{Version: wire.HelloVersion, Features: wire.FeatureAtomics | wire.FeatureMasked, Instance: 77, MaxSend: 16 << 10, Credits: 64, ReadDepth: 16}
	if s.c.peer == 77 {
		h.AckInst = 10
	}
	for _, f := range change {
		f(&h)
	}
	return h.Append(nil)
}

// hello sends the peer's HELLO.
func (s *script) hello(change ...func(*wire.Hello)) {
	s.t.Helper()
	s.send(frame(wire.Header{Flags: wire.FlagInternal, DPort: uint16(wire.TypeHello)}, s.helloBody(change...)))
}

// up is a connection whose handshake is complete.
func (s *script) up(change ...func(*wire.Hello)) *script {
	s.t.Helper()
	s.connect()
	s.hello(change...)
	if !s.c.Ready() {
		s.t.Fatalf("not ready: %v", s.lastTrace)
	}
	s.raw = s.raw[1:]
	return s
}

// again reconnects after a break, from the peer's side.
func (s *script) again(change ...func(*wire.Hello)) {
	s.t.Helper()
	s.q.toErr(true)
	s.run()
	s.raw = nil
	s.dropRequests()
	s.up(change...)
}

// dropRequests lets the Conn's own attempts fail.
func (s *script) dropRequests() {
	for _, ev := range s.peer.cm {
		if ev.Type == verbs.CMConnectRequest {
			s.peer.rejectReq(ev.Req, wire.Rejected(wire.NotSaid))
		}
	}
	s.peer.cm = nil
	for len(s.dev.cm) > 0 {
		ev := s.dev.cm[0]
		s.dev.cm = s.dev.cm[1:]
		s.c.HandleCM(s.now, &ev)
	}
	for _, ev := range s.peer.cm { // the one retried at once
		s.peer.rejectReq(ev.Req, nil)
	}
	s.peer.cm = nil
	for len(s.dev.cm) > 0 {
		ev := s.dev.cm[0]
		s.dev.cm = s.dev.cm[1:]
		s.c.HandleCM(s.now, &ev)
	}
}

func frame(h wire.Header, payload []byte) []byte {
	if h.Len == 0 {
		h.Len = uint32(len(payload))
	}
	b := make([]byte, wire.HeaderLen)
	h.Put(b)
	return append(b, payload...)
}

// data is the next message of the peer.
func (s *script) data(payload string, change ...func(*wire.Header)) []byte {
	s.seq++
	h := wire.Header{Seq: s.seq, SPort: 7, DPort: 9, SrcInc: 1}
	for _, f := range change {
		f(&h)
	}
	return frame(h, []byte(payload))
}

func flags(f wire.Flags) func(*wire.Header) { return func(h *wire.Header) { h.Flags |= f } }
func port(p uint16) func(*wire.Header)      { return func(h *wire.Header) { h.DPort = p } }

// send posts one SEND of the frames and runs.
func (s *script) send(frames ...[]byte) {
	s.t.Helper()
	s.post(frames...)
	s.run()
}

func (s *script) post(frames ...[]byte) {
	var b []byte
	for _, f := range frames {
		b = append(append(b, make([]byte, wire.Pad(len(b))-len(b))...), f...)
	}
	n := copy(s.mem, b)
	if _, err := s.q.PostSend([]verbs.SendWR{{Op: verbs.OpSend, SGL: []verbs.SGE{{LKey: s.key, Length: uint32(n)}}}}); err != nil {
		s.t.Fatal(err)
	}
	s.q.toWire()
}

// got is a frame the peer received.
type got struct {
	wire.Header
	body []byte
	send int // which SEND
}

// frames returns what the peer received since the last call.
func (s *script) frames() (out []got) {
	s.t.Helper()
	for i, b := range s.raw {
		for off := 0; off < len(b); {
			var h wire.Header
			if err := wire.Parse(b[off:], &h); err != nil {
				s.t.Fatal(err)
			}
			head := headLen(&h)
			end := min(off+head+int(h.Len), len(b))
			out = append(out, got{h, b[off+head : end], i})
			off = wire.Pad(end)
		}
	}
	s.raw = nil
	return out
}

func (s *script) msg(payload string) *msg.Msg {
	m := &msg.Msg{SPort: 3, DPort: 4, SrcInc: 5, Data: []byte(payload)}
	s.baseHost.send(s.c, m)
	return m
}

// cong sends the peer's map.
func (s *script) cong(ports ...uint16) {
	s.t.Helper()
	var m cong.Map
	for _, p := range ports {
		m.Set(p)
	}
	b := make([]byte, cong.Len)
	m.Put(b)
	s.send(frame(wire.Header{Flags: wire.FlagCong}, b))
}

// notice sends NOSOCK or REFUSED about seq.
func (s *script) notice(t wire.InternalType, seq uint64, dport uint16) []byte {
	n := wire.Notice{Seq: seq, DPort: dport, SPort: 3, SrcInc: 5}
	s.seq++
	return frame(wire.Header{Seq: s.seq, DPort: uint16(t), Flags: wire.FlagInternal}, n.Append(nil))
}

func (s *script) want(m *msg.Msg, o msg.Outcome) {
	s.t.Helper()
	if g, ok := s.done[m]; !ok || g != o {
		s.t.Errorf("message %q: ended %v with %d, want %d", m.Data, ok, g, o)
	}
}

func (s *script) open(ms ...*msg.Msg) {
	s.t.Helper()
	for _, m := range ms {
		if o, ok := s.done[m]; ok {
			s.t.Errorf("message %q has ended with %d", m.Data, o)
		}
	}
}

func (s *script) wantError(target error) {
	s.t.Helper()
	if s.c.State() != Down && s.c.State() != Error || !errors.Is(s.c.Info().LastError, target) {
		s.t.Errorf("state %v, error %v; want %v", s.c.State(), s.c.Info().LastError, target)
	}
}

func u64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
