package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/internal/runs"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// tcpWorld is two TCPs and the network between them, in virtual time: bytes that
// come in any cuts, connections that break at any moment with bytes on their way,
// attempts that cross, fail, or succeed late.
type tcpWorld struct {
	*testing.T
	rng    *rand.Rand
	now    int64
	ends   [2]*tcpEnd
	pipes  []*pipe
	dials  []tcpDial
	loss   int // of a thousand steps one breaks a connection, 0: never
	blind  bool
	cut    bool // attempts fail
	sleepy bool // hosts stop for a while
	halts  int  // of so many steps one begins a pause, 0: never
	cutOff int  // connections that were closed with something unread
}

type tcpDial struct {
	from *tcpEnd
	lane int
	id   uint64
}

// tcpEnd is the host of one TCP.
type tcpEnd struct {
	w       *tcpWorld
	n       int
	c       *Conn
	cfg     Config
	sent    map[uint16]int // by source port: messages passed to Send
	got     map[uint16]int // delivered
	ended   int
	total   int
	partial map[*tcpPartial]bool
	cong    cong.Map
	told    int // Congestion
	ups     int
	news    []*pipeEnd // of the kernel, not handed over
	asleep  int
	pausing tcpPause
	live    map[uint32]*msg.Msg // by Owner: passed to Send, not ended
	trusts  bool                // it goes by TCP's acknowledgements alone, as a kernel does
}

type tcpPartial struct {
	b []byte
	h wire.Header
}

// tcpBody is message i of a port: every byte known.
func tcpBody(sport uint16, i int) []byte {
	r := rand.New(rand.NewPCG(uint64(sport), uint64(i)))
	n := [...]int{0, 1, 7, 8, 100, 1000, 4096, mostCopied, mostCopied + 1, 40_000}[r.IntN(10)]
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*7 + i*13 + int(sport))
	}
	return b
}

func (e *tcpEnd) Deliver(_ *Conn, h *wire.Header, b []byte) conn.Verdict {
	want := tcpBody(h.SPort, e.got[h.SPort])
	if string(b) != string(want) || int(h.Len) != len(b) {
		e.w.Fatalf("end %d: message %d of port %d (sequence %d, flags %#x) has %d bytes, want %d", e.n, e.got[h.SPort], h.SPort, h.Seq, h.Flags, len(b), len(want))
	}
	e.got[h.SPort]++
	return conn.Accepted
}

func (e *tcpEnd) Begin(_ *Conn, h *wire.Header) ([]byte, any, conn.Verdict) {
	p := &tcpPartial{b: make([]byte, h.Len), h: *h}
	e.partial[p] = true
	return p.b, p, conn.Accepted
}

func (e *tcpEnd) Commit(c *Conn, h *wire.Header, token any) {
	p := token.(*tcpPartial)
	if !e.partial[p] || *h != p.h {
		e.w.Fatal("commit of what was not begun")
	}
	delete(e.partial, p)
	e.Deliver(c, h, p.b)
}

func (e *tcpEnd) Abort(_ *Conn, token any) {
	if !e.partial[token.(*tcpPartial)] {
		e.w.Fatal("abort of what was not begun")
	}
	delete(e.partial, token.(*tcpPartial))
}

func (e *tcpEnd) MsgDone(_ *Conn, m *msg.Msg, o msg.Outcome) {
	if o != msg.Acked || m.Ended != max(m.Run, 1) {
		e.w.Fatalf("outcome %v of %d datagrams, there are %d", o, m.Ended, m.Run)
	}
	e.ended += m.Ended
	delete(e.live, m.Owner.(uint32))
}

func (e *tcpEnd) PeerUp(*Conn) { e.ups++ }
func (e *tcpEnd) PeerDown(*Conn, error) {
	if e.ups--; e.ups != 0 {
		e.w.Fatal("down without up")
	}
}
func (e *tcpEnd) Congestion(*Conn, *cong.Map) { e.told++ }
func (e *tcpEnd) Trace(*Conn, string, error)  {}

func (e *tcpEnd) Dial(_ *Conn, lane int, id uint64, _ bool) error {
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
		e := &tcpEnd{w: w, n: i, sent: map[uint16]int{}, got: map[uint16]int{}, partial: map[*tcpPartial]bool{}, live: map[uint32]*msg.Msg{}}
		e.cfg = Config{Local: addr[i], Remote: addr[1-i], Lanes: lanes[i], StartSeq: 1 + uint64(i)*1000,
			MinBackoff: 1_000_000, MaxBackoff: 1_000_000_000, CloseTimeout: 1_000_000_000, Rand: w.rng.Uint64, Cong: &e.cong}
		e.c = New(e.cfg, e)
		w.ends[i] = e
	}
	return w
}

func (e *tcpEnd) send(sport uint16) {
	m := &msg.Msg{SPort: sport, DPort: 9, Data: tcpBody(sport, e.sent[sport])}
	e.sent[sport]++
	e.total++
	if e.total%4 == 0 { // a run, of that message and more
		bodies := []string{string(m.Data)}
		for range e.total % 7 {
			bodies = append(bodies, string(tcpBody(sport, e.sent[sport])))
			e.sent[sport]++
			e.total++
		}
		m.Data, m.Run = runs.Of(bodies...), len(bodies)
	}
	m.Owner = uint32(e.total)
	e.live[uint32(e.total)] = m
	e.c.Send(m)
}

// step lets one side have a turn, as the daemon's engine does: first what has
// arrived, then timers, then what is to be sent; and the network carry something.
func (w *tcpWorld) step() {
	w.now += int64(w.rng.IntN(200_000))
	e := w.ends[w.rng.IntN(2)]
	switch {
	case e.asleep > 0: // its host runs something else
		e.asleep--
		w.now += int64(w.rng.IntN(10_000_000))
	case w.sleepy && w.rng.IntN(2000) == 0:
		e.asleep = w.rng.IntN(300)
	default:
		e.turn()
	}
	if len(w.dials) > 0 && w.rng.IntN(3) == 0 {
		i := w.rng.IntN(len(w.dials))
		d := w.dials[i]
		w.dials = append(w.dials[:i], w.dials[i+1:]...)
		if w.cut || w.rng.IntN(20) == 0 {
			d.from.c.HandleFailed(w.now, d.lane, d.id, errors.New("refused"))
		} else {
			w.establish(d)
		}
	}
	if len(w.pipes) == 0 {
		return
	}
	i := w.rng.IntN(len(w.pipes))
	p := w.pipes[i]
	if w.loss > 0 && w.rng.IntN(1000) < w.loss {
		p.ends[0].reset, p.ends[1].reset = true, true
	}
	p.carry(w.rng.IntN(2))
	if p.ends[0].closed && p.ends[1].closed {
		w.pipes = append(w.pipes[:i], w.pipes[i+1:]...)
	}
}

// blind has the end not know that source ports say the lanes, if the world is so.
func (e *tcpEnd) blind() {
	if e.w.blind {
		e.c.peer.bySPort = false
	}
}

func (e *tcpEnd) turn() {
	w := e.w
	e.blind()
	if e.trusts {
		for i := range e.c.lanes {
			e.c.lanes[i].lived = true
		}
	}
	e.pause()
	e.poll()
	if at := e.c.NextTimeout(); at != 0 && at <= w.now {
		e.c.Tick(w.now)
	}
	if w.rng.IntN(2) == 0 && e.c.NeedFlush() {
		e.c.Flush(w.now)
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
	w.loss, w.halts = 0, 0
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
	first, n := uint64(0), uint64(*worldSeeds*10)
	if *worldSeed > 0 {
		first, n = *worldSeed, 1
	}
	for seed := range n {
		t.Run(fmt.Sprint(first+seed), func(t *testing.T) { runTCPWorld(t, first+seed) })
	}
}

func runTCPWorld(t *testing.T, seed uint64) {
	lanes := [...][2]int{{8, 8}, {1, 8}, {8, 2}, {4, 4}}[seed%4]
	w := newTCPWorld(t, seed, lanes)
	w.loss = int(seed % 5)
	w.blind = seed%3 == 0
	w.sleepy = seed%2 == 0
	if !w.sleepy {
		w.halts = [...]int{0, 500, 100}[seed/2%3]
	}
	if !w.blind {
		w.ends[0].trusts, w.ends[1].trusts = seed%7 == 1, seed%7 == 2
	}
	resets := [...]int{1500, 300, 60}[seed/3%3]
	for range 4000 {
		if w.rng.IntN(8) == 0 {
			w.ends[w.rng.IntN(2)].send(uint16(100 + w.rng.IntN(12)))
		}
		if w.rng.IntN(resets) == 0 {
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
}
