package conn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/internal/cong"
	"github.com/rdsd/rdsd/internal/wire"
)

// tcpWorld is two TCPs and the network between them, in virtual time: bytes that
// come in any cuts, connections that break at any moment with bytes on their way,
// attempts that cross, fail, or succeed late.
type tcpWorld struct {
	*testing.T
	rng   *rand.Rand
	now   int64
	ends  [2]*tcpEnd
	pipes []*pipe
	dials []tcpDial
	loss  int // of a thousand steps one breaks a connection, 0: never
	blind bool
	cut   bool // attempts fail
}

type tcpDial struct {
	from *tcpEnd
	lane int
	id   uint64
}

// pipe is a TCP connection: half 0 is written by the side that connected.
type pipe struct {
	w     *tcpWorld
	halfs [2]half
	ends  [2]*pipeEnd
}

// half is one direction.
type half struct {
	flight  []byte // written, not acked
	arrived []byte // acked, not read
	fin     bool   // Finish was called; counts as one byte unacked until
	finDone bool   // it has arrived
}

// pipeEnd is one side's Stream.
type pipeEnd struct {
	p      *pipe
	side   int
	owner  *tcpEnd
	lane   int
	closed bool
	reset  bool // the connection broke
	done   bool // HandleClosed was called
	full   bool
}

func (s *pipeEnd) out() *half { return &s.p.halfs[s.side] }
func (s *pipeEnd) in() *half  { return &s.p.halfs[1-s.side] }

func (s *pipeEnd) Write(pieces [][]byte) (n int, err error) {
	if s.closed {
		panic("write to a closed stream")
	}
	if s.reset {
		return 0, errors.New("broken pipe")
	}
	room := 60_000 - len(s.out().flight)
	if s.p.w.rng.IntN(4) == 0 {
		room = s.p.w.rng.IntN(200)
	}
	for _, b := range pieces {
		k := max(min(len(b), room), 0)
		s.out().flight = append(s.out().flight, b[:k]...)
		n += k
		if room -= k; k < len(b) {
			s.full = true
			break
		}
	}
	return n, nil
}

func (s *pipeEnd) Unacked() (int, error) {
	n := len(s.out().flight)
	if s.out().fin && !s.out().finDone {
		n++
	}
	return n, nil
}

func (s *pipeEnd) Finish() { s.out().fin = true }

func (s *pipeEnd) Close(abort bool) {
	if s.closed {
		panic("closed twice")
	}
	s.closed = true
	if len(s.in().arrived) > 0 && !s.reset {
		s.p.w.Error("closed with unread data")
	}
	if other := s.p.ends[1-s.side]; abort && other != nil {
		other.reset = true
		s.out().flight = nil
	}
	s.out().fin = true
}

// tcpEnd is the host of one TCP.
type tcpEnd struct {
	w       *tcpWorld
	n       int
	c       *TCP
	sent    map[uint16]int // by source port: messages passed to Send
	got     map[uint16]int // delivered
	ended   int
	acked   int
	total   int
	partial map[*tcpPartial]bool
	cong    cong.Map
	told    int // Congestion
	ups     int
	drop    map[*Msg]bool
}

type tcpPartial struct {
	b []byte
	h wire.Header
}

// tcpBody is message i of a port: every byte known.
func tcpBody(sport uint16, i int) []byte {
	r := rand.New(rand.NewPCG(uint64(sport), uint64(i)))
	n := [...]int{0, 1, 7, 8, 100, 1000, 4096, tcpCopy, tcpCopy + 1, 40_000}[r.IntN(10)]
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*7 + i*13 + int(sport))
	}
	return b
}

func (e *tcpEnd) Deliver(_ *TCP, h *wire.Header, b []byte) Verdict {
	want := tcpBody(h.SPort, e.got[h.SPort])
	if string(b) != string(want) || int(h.Len) != len(b) {
		e.w.Fatalf("end %d: message %d of port %d (sequence %d, flags %#x) has %d bytes, want %d", e.n, e.got[h.SPort], h.SPort, h.Seq, h.Flags, len(b), len(want))
	}
	e.got[h.SPort]++
	return Accepted
}

func (e *tcpEnd) Begin(_ *TCP, h *wire.Header) ([]byte, any, Verdict) {
	p := &tcpPartial{b: make([]byte, h.Len), h: *h}
	e.partial[p] = true
	return p.b, p, Accepted
}

func (e *tcpEnd) Commit(c *TCP, h *wire.Header, token any) {
	p := token.(*tcpPartial)
	if !e.partial[p] || *h != p.h {
		e.w.Fatal("commit of what was not begun")
	}
	delete(e.partial, p)
	e.Deliver(c, h, p.b)
}

func (e *tcpEnd) Abort(_ *TCP, token any) {
	if !e.partial[token.(*tcpPartial)] {
		e.w.Fatal("abort of what was not begun")
	}
	delete(e.partial, token.(*tcpPartial))
}

func (e *tcpEnd) MsgDone(_ *TCP, m *Msg, o Outcome) {
	if o != Acked {
		e.w.Fatalf("outcome %v", o)
	}
	e.ended++
}

func (e *tcpEnd) PeerUp(*TCP) { e.ups++ }
func (e *tcpEnd) PeerDown(*TCP, error) {
	if e.ups--; e.ups != 0 {
		e.w.Fatal("down without up")
	}
}
func (e *tcpEnd) Congestion(*TCP, *cong.Map) { e.told++ }
func (e *tcpEnd) Trace(*TCP, string, error)  {}

func (e *tcpEnd) Dial(_ *TCP, lane int, id uint64) error {
	if e.w.rng.IntN(50) == 0 {
		return errors.New("no descriptor")
	}
	e.w.dials = append(e.w.dials, tcpDial{e, lane, id})
	return nil
}

func newTCPWorld(t *testing.T, seed uint64, lanes [2]int) *tcpWorld {
	w := &tcpWorld{T: t, rng: rand.New(rand.NewPCG(seed, 7)), now: 1}
	addr := [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	for i := range w.ends {
		e := &tcpEnd{w: w, n: i, sent: map[uint16]int{}, got: map[uint16]int{}, partial: map[*tcpPartial]bool{}}
		e.c = NewTCP(TCPConfig{Local: addr[i], Remote: addr[1-i], Lanes: lanes[i], StartSeq: 1 + uint64(i)*1000,
			MinBackoff: 1_000_000, MaxBackoff: 1_000_000_000, CloseTimeout: 1_000_000_000, Rand: w.rng.Uint64, Cong: &e.cong}, e)
		w.ends[i] = e
	}
	return w
}

func (e *tcpEnd) send(sport uint16) {
	m := &Msg{SPort: sport, DPort: 9, Data: tcpBody(sport, e.sent[sport])}
	e.sent[sport]++
	e.total++
	e.c.Send(m)
}

// step does one thing that may happen.
func (w *tcpWorld) step() {
	w.now += int64(w.rng.IntN(200_000))
	for _, e := range w.ends {
		if w.blind {
			e.c.bySPort = false
		}
		if at := e.c.NextTimeout(); at != 0 && at <= w.now {
			e.c.Tick(w.now)
		}
		if w.rng.IntN(2) == 0 && e.c.NeedFlush() {
			e.c.Flush(w.now)
		}
	}
	if len(w.dials) > 0 && w.rng.IntN(3) == 0 {
		i := w.rng.IntN(len(w.dials))
		d := w.dials[i]
		w.dials = append(w.dials[:i], w.dials[i+1:]...)
		w.connect(d)
	}
	if len(w.pipes) == 0 {
		return
	}
	i := w.rng.IntN(len(w.pipes))
	p := w.pipes[i]
	if w.loss > 0 && w.rng.IntN(1000) < w.loss {
		p.ends[0].reset, p.ends[1].reset = true, true
	}
	p.step()
	if p.ends[0].closed && p.ends[1].closed {
		w.pipes = append(w.pipes[:i], w.pipes[i+1:]...)
	}
}

func (w *tcpWorld) connect(d tcpDial) {
	if w.cut || w.rng.IntN(20) == 0 {
		d.from.c.HandleFailed(w.now, d.lane, d.id, errors.New("refused"))
		return
	}
	to := w.ends[1-d.from.n]
	p := &pipe{w: w}
	p.ends[0] = &pipeEnd{p: p, side: 0, owner: d.from, lane: d.lane}
	p.ends[1] = &pipeEnd{p: p, side: 1, owner: to}
	w.pipes = append(w.pipes, p)
	for _, q := range w.pipes { // as rdstcp.Net.Poll
		for side, r := range q.ends {
			if !r.closed && !r.done {
				q.read(r, &q.halfs[1-side])
			}
		}
	}
	accept := func() {
		var err error
		if p.ends[1].lane, err = to.c.HandleAccept(w.now, p.ends[1], uint16(32768+8*w.rng.IntN(1000)+d.lane)); err != nil {
			p.ends[1].Close(true)
		}
	}
	if w.rng.IntN(2) == 0 {
		accept()
		d.from.c.HandleConnected(w.now, d.lane, d.id, p.ends[0], true)
	} else {
		d.from.c.HandleConnected(w.now, d.lane, d.id, p.ends[0], true)
		accept()
	}
}

// step moves bytes of one direction.
func (p *pipe) step() {
	side := p.w.rng.IntN(2)
	s, r := p.ends[side], p.ends[1-side]
	h := &p.halfs[side]
	if !s.reset && !r.closed {
		k := p.w.rng.IntN(len(h.flight) + 1)
		h.arrived = append(h.arrived, h.flight[:k]...)
		h.flight = h.flight[k:]
		if len(h.flight) == 0 && h.fin {
			h.finDone = true
		}
	}
	if r.closed && !s.closed && !s.reset && len(h.flight) > 0 { // nobody there
		s.reset = true
	}
	if s.full && !s.closed && len(h.flight) < 30_000 {
		s.full = false
		s.owner.c.HandleRoom(p.w.now, s.lane)
	}
	if r.closed || r.done {
		return
	}
	if r.reset || h.finDone || p.w.rng.IntN(3) > 0 {
		p.read(r, h)
	}
	if r.closed || r.done || len(h.arrived) > 0 {
		return
	}
	switch {
	case r.reset:
		r.done = true
		r.owner.c.HandleClosed(p.w.now, r.lane, errors.New("reset"))
	case h.finDone:
		r.done = true
		r.owner.c.HandleClosed(p.w.now, r.lane, nil)
	}
}

// read hands up what has arrived, in cuts.
func (p *pipe) read(r *pipeEnd, h *half) {
	for len(h.arrived) > 0 && !r.closed {
		k := 1 + p.w.rng.IntN(len(h.arrived))
		if dst := r.owner.c.Want(r.lane); len(dst) > 0 && p.w.rng.IntN(2) == 0 {
			k = copy(dst, h.arrived[:k])
			h.arrived = h.arrived[k:]
			r.owner.c.HandlePlaced(p.w.now, r.lane, k)
			continue
		}
		b := append([]byte(nil), h.arrived[:k]...)
		h.arrived = h.arrived[k:]
		r.owner.c.HandleData(p.w.now, r.lane, b)
	}
}

// settled: everything that was sent is delivered, and its end told.
func (w *tcpWorld) settled() bool {
	for i, e := range w.ends {
		if e.ended != e.total {
			return false
		}
		for port, n := range e.sent {
			if w.ends[1-i].got[port] != n {
				return false
			}
		}
	}
	return true
}

func (w *tcpWorld) drain() {
	w.loss = 0
	for i := 0; !w.settled(); i++ {
		if i > 3_000_000 {
			for _, e := range w.ends {
				w.Errorf("end %d: %d of %d ended, lanes %+v, %+v", e.n, e.ended, e.total, e.c.Lanes(nil), e.c.Info())
			}
			w.Fatal("it does not come to an end")
		}
		w.step()
	}
}

// Everything arrives once and in order, over any number of broken connections,
// whichever lanes they come back on.
func TestTCPWorld(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lanes := [...][2]int{{8, 8}, {1, 8}, {8, 2}, {4, 4}}[seed%4]
			w := newTCPWorld(t, seed, lanes)
			w.loss = int(seed % 5)
			w.blind = seed%3 == 0
			for range 4000 {
				if w.rng.IntN(8) == 0 {
					w.ends[w.rng.IntN(2)].send(uint16(100 + w.rng.IntN(12)))
				}
				if w.rng.IntN(1500) == 0 {
					w.ends[w.rng.IntN(2)].c.Reset(w.now, errors.New("reset by hand"))
				}
				w.step()
			}
			w.drain()
			want := min(lanes[0], lanes[1])
			for _, e := range w.ends {
				if e.c.n != want {
					t.Errorf("%d lanes, want %d", e.c.n, want)
				}
			}
		})
	}
}
