package tcp

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// tcpPuppet is one TCP whose peer is the test: it makes the streams, writes their
// bytes, and says what is acked.
type tcpPuppet struct {
	*testing.T
	c       *Conn
	now     int64
	dials   []tcpDial
	dialErr error
	got     []string // what was delivered: "sport:payload"
	done    []msg.Outcome
	verdict conn.Verdict
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

func (p *tcpPuppet) Deliver(_ *Conn, h *wire.Header, b []byte) conn.Verdict {
	if h.Flags&wire.FlagRun != 0 {
		p.Errorf("a run of a kernel: %+v", h)
	}
	if p.verdict == conn.Accepted {
		p.got = append(p.got, string(rune('a'+h.SPort%26))+":"+string(b))
	}
	return p.verdict
}
func (p *tcpPuppet) Begin(_ *Conn, h *wire.Header) ([]byte, any, conn.Verdict) {
	if p.verdict != conn.Accepted {
		return nil, nil, p.verdict
	}
	p.partial = make([]byte, h.Len)
	return p.partial, p, conn.Accepted
}
func (p *tcpPuppet) Commit(c *Conn, h *wire.Header, _ any)      { p.Deliver(c, h, p.partial) }
func (p *tcpPuppet) Abort(*Conn, any)                           { p.aborted++ }
func (p *tcpPuppet) MsgDone(_ *Conn, _ *msg.Msg, o msg.Outcome) { p.done = append(p.done, o) }
func (p *tcpPuppet) PeerUp(*Conn)                               { p.up = true }
func (p *tcpPuppet) PeerDown(*Conn, error)                      { p.up = false }
func (p *tcpPuppet) Congestion(*Conn, *cong.Map)                { p.maps++ }
func (p *tcpPuppet) Trace(_ *Conn, event string, _ error)       { p.trace = append(p.trace, event) }
func (p *tcpPuppet) Dial(_ *Conn, lane int, id uint64, _ bool) error {
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
	p.c = New(Config{Local: a, Remote: b, Lanes: 8, StartSeq: 100, MinBackoff: 1_000_000, MaxBackoff: 1_000_000_000,
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
