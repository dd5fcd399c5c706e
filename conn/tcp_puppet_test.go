package conn

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
)

// tcpPuppet is one TCP whose peer is the test: it makes the streams, writes their
// bytes, and says what is acked.
type tcpPuppet struct {
	*testing.T
	c       *TCP
	now     int64
	streams []*puppetStream // of Dial, by lane, and of accepts
	dials   []tcpDial
	dialErr error
	got     []string // what was delivered: "sport:payload"
	done    []Outcome
	verdict Verdict
	partial []byte
	aborted int
	up      bool
	maps    int
	trace   []string
	cong    cong.Map
}

type puppetStream struct {
	out             []byte
	room            int // bytes it takes before it is full, -1: any
	unacked         int
	unackedAll      bool
	err             error
	finished, ended bool
	abort           bool
}

func (s *puppetStream) Write(pieces [][]byte) (n int, err error) {
	if s.err != nil {
		return 0, s.err
	}
	for _, b := range pieces {
		k := len(b)
		if s.room >= 0 {
			k = min(k, s.room)
			s.room -= k
		}
		s.out = append(s.out, b[:k]...)
		n += k
	}
	if s.unackedAll {
		s.unacked += n
	}
	return n, nil
}
func (s *puppetStream) Unacked() (int, error) { return s.unacked, nil }
func (s *puppetStream) Finish()               { s.finished = true }
func (s *puppetStream) Close(abort bool)      { s.ended, s.abort = true, abort }

func (p *tcpPuppet) Deliver(_ *TCP, h *wire.Header, b []byte) Verdict {
	if p.verdict == Accepted {
		p.got = append(p.got, string(rune('a'+h.SPort%26))+":"+string(b))
	}
	return p.verdict
}
func (p *tcpPuppet) Begin(_ *TCP, h *wire.Header) ([]byte, any, Verdict) {
	if p.verdict != Accepted {
		return nil, nil, p.verdict
	}
	p.partial = make([]byte, h.Len)
	return p.partial, p, Accepted
}
func (p *tcpPuppet) Commit(c *TCP, h *wire.Header, _ any) { p.Deliver(c, h, p.partial) }
func (p *tcpPuppet) Abort(*TCP, any)                      { p.aborted++ }
func (p *tcpPuppet) MsgDone(_ *TCP, _ *Msg, o Outcome)    { p.done = append(p.done, o) }
func (p *tcpPuppet) PeerUp(*TCP)                          { p.up = true }
func (p *tcpPuppet) PeerDown(*TCP, error)                 { p.up = false }
func (p *tcpPuppet) Congestion(*TCP, *cong.Map)           { p.maps++ }
func (p *tcpPuppet) Trace(_ *TCP, event string, _ error)  { p.trace = append(p.trace, event) }
func (p *tcpPuppet) Dial(_ *TCP, lane int, id uint64, _ bool) error {
	p.dials = append(p.dials, tcpDial{lane: lane, id: id})
	return p.dialErr
}

// newTCPPuppet: smaller says that ours is the smaller address.
func newTCPPuppet(t *testing.T, smaller bool) *tcpPuppet {
	p := &tcpPuppet{T: t, now: 1}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	if !smaller {
		a, b = b, a
	}
	p.c = NewTCP(TCPConfig{Local: a, Remote: b, Lanes: 8, StartSeq: 100, MinBackoff: 1_000_000, MaxBackoff: 1_000_000_000,
		CloseTimeout: 1_000_000_000, Rand: func() uint64 { return 0 }, Cong: &p.cong}, p)
	return p
}

// run lets what is due happen for ms milliseconds.
func (p *tcpPuppet) run(ms int) {
	for range ms {
		p.now += 1_000_000
		if at := p.c.NextTimeout(); at != 0 && at <= p.now {
			p.c.Tick(p.now)
		}
		if p.c.NeedFlush() {
			p.c.Flush(p.now)
		}
	}
}

// accept is a connection of the peer's.
func (p *tcpPuppet) accept(port uint16) (*puppetStream, int, error) {
	s := &puppetStream{room: -1}
	lane, err := p.c.HandleAccept(p.now, s, port)
	p.run(2)
	return s, lane, err
}

// dialed answers the oldest attempt.
func (p *tcpPuppet) dialed() (*puppetStream, int) {
	p.Helper()
	if len(p.dials) == 0 {
		p.Fatal("nothing was dialled")
	}
	d := p.dials[0]
	p.dials = p.dials[1:]
	s := &puppetStream{room: -1}
	p.c.HandleConnected(p.now, d.lane, d.id, s, true)
	p.run(2)
	return s, d.lane
}

// tcpFrame is a message as a kernel sends it.
func tcpFrame(seq uint64, sport, dport uint16, flags wire.Flags, payload string, ext ...byte) []byte {
	h := wire.Header{Seq: seq, SPort: sport, DPort: dport, Flags: flags, Len: uint32(len(payload))}
	copy(h.Ext[:], ext)
	b := make([]byte, wire.HeaderLen)
	h.PutTCP(b)
	return append(b, payload...)
}

// frames parses what was written.
func (p *tcpPuppet) frames(b []byte) (hs []wire.Header) {
	p.Helper()
	for len(b) > 0 {
		var h wire.Header
		if err := wire.ParseTCP(b, &h); err != nil || len(b) < wire.HeaderLen+int(h.Len) {
			p.Fatalf("half a frame: %v, %d bytes of %d", err, len(b), h.Len)
		}
		if b[30] != 0 || b[31] != 0 || h.Ack != 0 {
			p.Errorf("checksum or ack in %x", b[:wire.HeaderLen])
		}
		hs = append(hs, h)
		b = b[wire.HeaderLen+int(h.Len):]
	}
	return hs
}

// A frame that no Linux host sends costs its own connection, or nothing.
func TestTCPHostile(t *testing.T) {
	bigLen := tcpFrame(1, 5, 6, 0, "")
	bigLen[16], bigLen[17], bigLen[18], bigLen[19] = 0, 0x10, 0, 1 // 1 MiB and 1
	huge := bytes.Clone(bigLen)
	huge[16] = 0xff
	checksum := tcpFrame(1, 5, 6, 0, "x")
	checksum[30] = 0x55
	garbage := bytes.Repeat([]byte{0xff}, 100)
	for _, k := range []struct {
		what  string
		bytes []byte
		dead  bool
		got   string // delivered, of it and of what comes behind
	}{
		{"1 MiB and a byte", bigLen, true, ""},
		{"4 GiB", huge, true, ""},
		{"garbage", garbage, true, ""},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("r", 60)), true, ""},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: 10.0.0.1:16385\r\nAccept: */*\r\n\r\n"), true, ""},
		{"a checksum is not looked at", checksum, false, "f:x z:end"},
		{"a short congestion map", tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\xff", 100)), false, "z:end"},
		{"a long congestion map", tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\xff", 8193)), false, "z:end"},
		{"an empty congestion map", tcpFrame(0, 0, 0, wire.FlagCong, ""), false, "z:end"},
		{"a map with another flag is a message", tcpFrame(1, 5, 6, wire.FlagCong|wire.FlagAckRequired<<2, "m"), false, "f:m z:end"},
		{"all other flags", tcpFrame(1, 5, 6, 0xfe&^wire.FlagRetransmitted, "x"), false, "f:x z:end"},
		{"from port 0 to port 0", tcpFrame(1, 0, 0, 0, "x"), false, "z:end"},
		{"an answer nobody asked for", tcpFrame(1, 0, 1, 0, "x", 5, 0, 8), false, "z:end"},
		{"65535 lanes", tcpFrame(1, 1, 0, 0, "", 5, 0xff, 0xff), false, "z:end"},
		{"no lanes", tcpFrame(1, 1, 0, 0, "", 5, 0, 0), false, "z:end"},
		{"three lanes", tcpFrame(1, 1, 0, 0, "", 5, 0, 3), false, "z:end"},
		{"an extension header that overruns", tcpFrame(1, 5, 6, 0, "x", 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3), false, "f:x z:end"},
		{"unknown extension headers", tcpFrame(1, 5, 6, 0, "x", 15, 14, 13, 12, 11, 10, 200, 1), false, "f:x z:end"},
		{"the last sequence", tcpFrame(1<<64-1, 5, 6, 0, "x"), false, "f:x z:end"},
		{"sequence 0", tcpFrame(0, 5, 6, 0, "x"), false, "f:x z:end"},
		{"an old one, flagged", append(tcpFrame(9, 5, 6, 0, "x"), tcpFrame(9, 5, 6, wire.FlagRetransmitted, "y")...), false, "f:x z:end"},
		{"an old one, not flagged", append(tcpFrame(9, 5, 6, 0, "x"), tcpFrame(3, 5, 6, 0, "y")...), false, "f:x f:y z:end"},
	} {
		for _, cut := range []int{1 << 20, 1, 7} {
			t.Run(k.what, func(t *testing.T) {
				p := newTCPPuppet(t, false)
				s, lane, err := p.accept(40000)
				if err != nil || !p.up {
					t.Fatal(err)
				}
				all := append(bytes.Clone(k.bytes), tcpFrame(1000, 25, 6, 0, "end")...)
				for len(all) > 0 && !s.ended {
					n := min(cut, len(all))
					p.c.HandleData(p.now, lane, all[:n])
					all = all[n:]
				}
				p.run(3)
				if s.ended != k.dead || k.dead && (!s.abort || p.up || p.c.stats.ProtocolErrors != 1) {
					t.Errorf("ended %v, %+v", s.ended, p.c.stats)
				}
				if got := strings.Join(p.got, " "); got != k.got {
					t.Errorf("delivered %q, want %q", got, k.got)
				}
				if p.c.n&(p.c.n-1) != 0 || p.c.n > wire.MaxPaths {
					t.Errorf("%d lanes", p.c.n)
				}
				if k.dead { // the next connection is as good as any
					if s, lane, err = p.accept(40001); err != nil {
						t.Fatal(err)
					}
					p.c.HandleData(p.now, lane, tcpFrame(1, 5, 6, 0, "again"))
					if got := strings.Join(p.got, " "); got != "f:again" || s.ended {
						t.Errorf("then %q", got)
					}
				}
			})
		}
	}
}

// The larger address asks, and is called; it sends nothing on what it dialled.
func TestTCPDirection(t *testing.T) {
	p := newTCPPuppet(t, false)
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: []byte("x")})
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
	if len(p.done) != 1 || p.done[0] != Acked {
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
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: []byte("one")})
	p.run(2)
	d := p.dials[0]
	p.dials = nil
	s := &puppetStream{room: -1, unackedAll: true}
	p.c.HandleConnected(p.now, d.lane, d.id, s, true)
	p.run(3)
	p.c.HandleData(p.now, 0, tcpFrame(1, 5, 6, 0, "it is there"))
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: []byte("two")})
	s.room = 60
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: bytes.Repeat([]byte("3"), 30_000)}) // half of it
	p.run(2)
	if len(p.done) != 0 {
		t.Fatalf("done without an ack: %v", p.done)
	}
	s.unacked = 60 + 2 // of the probe, too
	p.run(30)
	if len(p.done) != 1 || p.done[0] != Acked {
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

// Pings: answered from port 0, on the same lane, without payload; not from port
// 0, not to a congested port, not when they are ignored, and not without bound.
func TestTCPPings(t *testing.T) {
	p := newTCPPuppet(t, false)
	s, lane, _ := p.accept(40000)
	s.out = nil
	p.c.HandleData(p.now, lane, tcpFrame(1, 77, 0, 0, "payload"))
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
	for i := range 3 * maxPongs {
		p.c.HandleData(p.now, lane, tcpFrame(uint64(4+i), 78, 0, 0, ""))
	}
	if n := p.c.lanes[0].out.queue.n; n > maxPongs {
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
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: []byte("x")})
	p.run(2)
	p.c.HandleClosed(p.now, lane, errors.New("reset"))
	p.c.Send(&Msg{SPort: 5, DPort: 6, Data: []byte("y")})
	s := &puppetStream{room: 0}
	if lane, _ = p.c.HandleAccept(p.now, s, 40001); lane != 0 {
		t.Fatal(lane)
	}
	p.c.HandleData(p.now, lane, tcpFrame(1, 1, 0, 0, "", 5, 0, 1, 6, 0, 0, 0, 2))
	p.c.HandleData(p.now, lane, tcpFrame(2, 5, 6, wire.FlagRetransmitted, "new"))
	if len(p.done) != 1 || p.done[0] != Lost {
		t.Errorf("outcomes %v", p.done)
	}
	if got := strings.Join(p.got, " "); got != "f:old f:new" {
		t.Errorf("delivered %q", got)
	}
}

// Messages that are withdrawn, given up, or end with the association.
func TestTCPEnds(t *testing.T) {
	p := newTCPPuppet(t, true)
	queued, given, closed, op := &Msg{SPort: 5}, &Msg{SPort: 5}, &Msg{SPort: 6, Data: make([]byte, 30_000)}, &Msg{SPort: 7}
	p.c.Send(&Msg{SPort: 7, DestCookie: 1 << 32}) // a Linux host would fail on it
	p.c.Send(queued)
	p.c.Send(given)
	if p.c.Cancel(queued, Cancelled) {
		t.Error("later")
	}
	if o, later := p.c.GiveUp(given); o != Withdrawn || later {
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
	p.c.Send(&Msg{})
	if !s.finished || s.ended {
		t.Errorf("%+v", s)
	}
	want := []Outcome{OpRefused, Cancelled, Withdrawn, Cancelled, Cancelled}
	if !slices.Equal(p.done, want) {
		t.Errorf("outcomes %v", p.done)
	}
	p.run(2000)
	if !s.ended || p.c.State() != Down || len(p.done) != len(want)+1 || p.done[5] != Cancelled {
		t.Errorf("%+v, %v, %v", s, p.c.State(), p.done)
	}
	if _, _, err := p.accept(1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// FuzzTCPStream feeds any bytes in two cuts.
func FuzzTCPStream(f *testing.F) {
	f.Add(tcpFrame(1, 5, 6, 0, "hello"), 20)
	f.Add(append(tcpFrame(1, 1, 0, 0, "", 5, 0, 8, 8, 0), tcpFrame(0, 0, 0, wire.FlagCong, strings.Repeat("\x01", 8192))...), 100)
	f.Add(append(tcpFrame(2, 0, 1, 0, "", 6, 1, 2, 3, 4), tcpFrame(3, 9, 0, 0, "ping")...), 47)
	f.Add(bytes.Repeat([]byte{0xff}, 96), 48)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		p := newTCPPuppet(t, false)
		_, lane, _ := p.accept(40000)
		cut = min(max(cut, 0), len(b))
		p.c.HandleData(p.now, lane, b[:cut])
		if dst := p.c.Want(lane); len(dst) > 0 && cut < len(b) && p.c.lanes[lane].stream != nil {
			n := copy(dst, b[cut:])
			p.c.HandlePlaced(p.now, lane, n)
			cut += n
		}
		if p.c.lanes[lane].stream != nil {
			p.c.HandleData(p.now, lane, b[cut:])
		}
		p.run(3)
		if p.c.lanes[lane].stream != nil {
			p.c.HandleClosed(p.now, lane, nil)
		}
		if i := p.c.Info(); i.State == Up || p.c.own.n > maxPongs+4 {
			t.Fatalf("%+v", i)
		}
	})
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
	out := len(s.out)
	for port := range uint16(16) {
		p.c.Send(&Msg{SPort: 100 + port, DPort: 6, Data: []byte("x")})
	}
	p.run(5)
	if hs := p.frames(s.out[out:]); len(hs) != 16 || p.c.n != 1 {
		t.Errorf("%d messages on the lane we offered, %d lanes", len(hs), p.c.n)
	}
	// When that one is gone a new one has to come, whatever the peer believes.
	p.c.HandleClosed(p.now, 0, errors.New("reset"))
	for i := 1; i < 8; i++ {
		if x := &p.c.lanes[i]; x.state != Error {
			t.Errorf("lane %d is %v", i, x.state)
		}
	}
	if _, lane, err := p.accept(40010); err != nil || lane != 0 {
		t.Errorf("lane %d, %v", lane, err)
	}
}
