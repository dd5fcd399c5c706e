package conn

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// cutWorld sends runs and datagrams of one socket to an address where kernels and daemons
// take turns, breaks connections and cancels, and checks what arrives and how it ends.
type cutWorld struct {
	*script
	rng    *rand.Rand
	seed   uint64
	n      int              // datagrams sent: each holds its number
	first  map[*msg.Msg]int // the number of a message's first datagram
	size   map[*msg.Msg]int // its datagrams
	open   []*msg.Msg       // not ended
	before map[*msg.Msg]int // of those that were cancelled: what was acked by then
	last   uint64           // highest sequence that the peer has received
	acked  uint64           // ... and has acked
	at     map[int]uint64   // with which sequence, the peer that is there now
	done   map[int]bool     // acked
	posted int              // the number of the last one that arrived
	ends   map[msg.Outcome]int
	split  int // runs that ended with more than one outcome
}

func (w *cutWorld) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// body is datagram i.
func body(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("-", i%9)) }

func (w *cutWorld) send() {
	n := 1
	if w.rng.IntN(3) > 0 {
		n = 1 + w.rng.IntN(100)
	}
	var bodies []string
	for range n {
		w.n++
		bodies = append(bodies, body(w.n))
	}
	var m *msg.Msg
	if n == 1 && w.rng.IntN(2) == 0 {
		m = w.msg(bodies[0])
	} else {
		m = w.sendRun(bodies...)
	}
	w.first[m], w.size[m] = w.n-n+1, n
	w.open = append(w.open, m)
}

// receive is what the peer does with what has arrived.
func (w *cutWorld) receive() {
	for _, f := range w.frames() {
		if f.Flags&wire.FlagInternal != 0 || f.Seq == 0 || f.SPort == 0 {
			continue
		}
		if f.Seq <= w.last {
			if f.Flags&wire.FlagRetransmitted == 0 {
				w.fatalf("sequence %d after %d", f.Seq, w.last)
			}
			continue
		}
		w.last = f.Seq
		bodies := [][]byte{f.body}
		if n, _ := f.Run(); n > 0 {
			if _, ok := frames.Check(f.body, n); !ok || w.c.Kernel() {
				w.fatalf("a run of %d, kernel %v", n, w.c.Kernel())
			}
			bodies = bodies[:0]
			for rest := f.body; len(rest) > 0; {
				var p []byte
				p, rest, _ = frames.Next(rest)
				bodies = append(bodies, p)
			}
		}
		for _, b := range bodies {
			var i int
			fmt.Sscanf(string(b), "%d", &i)
			if string(b) != body(i) || i <= w.posted {
				w.fatalf("%q arrived after datagram %d", b, w.posted)
			}
			w.posted = i
			w.at[i] = f.Seq
		}
	}
}

// ack has the peer ack some of what it has received.
func (w *cutWorld) ack() {
	if w.acked += w.rng.Uint64N(w.last - w.acked + 1); w.rng.IntN(3) == 0 {
		w.acked = w.last
	}
	w.mark()
	w.script.send(frame(wire.Header{Ack: w.acked}, nil))
}

// mark notes what the peer has acked.
func (w *cutWorld) mark() {
	for i, seq := range w.at {
		if seq <= w.acked {
			w.done[i] = true
		}
	}
}

// ofMsg counts the datagrams of m that are acked.
func (w *cutWorld) ofMsg(m *msg.Msg) (n int) {
	for i := range w.size[m] {
		if w.done[w.first[m]+i] {
			n++
		}
	}
	return n
}

// look checks the ends of what has ended.
func (w *cutWorld) look() {
	still := w.open[:0]
	for _, m := range w.open {
		o, ok := w.script.done[m]
		if !ok {
			still = append(still, m)
			continue
		}
		n, acked := w.size[m], w.ofMsg(m)
		if at, cancelled := w.before[m]; cancelled && o != msg.Acked {
			acked = at
		}
		w.ends[o]++
		switch {
		case o == msg.Acked && (acked != n || m.Ended != n):
			w.fatalf("%d of %d acked, told %d", acked, n, m.Ended)
		case o != msg.Acked && m.Ended != n-acked:
			w.fatalf("%v of %d, %d of %d were acked", o, m.Ended, acked, n)
		case o != msg.Acked && m.Ended != n:
			w.split++
		}
	}
	w.open = still
}

// peer is a new life at the address.
func (w *cutWorld) peer(kernel bool) {
	w.q.toErr(true)
	w.run()
	w.raw = nil
	w.dropRequests()
	if kernel != w.c.Kernel() {
		w.last, w.acked, w.at = 0, 0, map[int]uint64{}
	} else if !kernel { // HELLO acks
		w.acked = w.last
		w.mark()
	}
	if w.skip(); kernel {
		w.kernelConnect()
	} else {
		w.up(func(h *wire.Hello) { h.Ack, h.AckInst = w.last, 10 })
	}
}

func (w *cutWorld) step() {
	w.now += 1000
	switch k := w.rng.IntN(20); {
	case k < 6:
		w.send()
		w.hold = w.rng.IntN(3) == 0
		w.run()
	case k < 9:
		w.hold = false
		w.run()
	case k < 15:
		w.receive()
		w.ack()
	case k == 15 && w.c.Kernel():
		w.receive()
		w.hold = false
		w.peer(true)
	case k == 16:
		w.receive()
		w.look()
		w.hold = false
		w.peer(w.rng.IntN(2) == 0)
	case k == 17 && len(w.open) > 0:
		w.look()
		m := w.open[w.rng.IntN(len(w.open))]
		w.before[m] = w.ofMsg(m)
		w.c.GiveUp(m)
	}
	w.look()
}

// TestCutWorld: whatever happens, a kernel and a daemon get datagrams once and in order,
// and what is told of each run is true of every datagram of it.
func TestCutWorld(t *testing.T) {
	ends, split := map[msg.Outcome]int{}, 0
	for seed := range uint64(60) {
		w := &cutWorld{script: newKernel(t), rng: rand.New(rand.NewPCG(seed, 3)), seed: seed, first: map[*msg.Msg]int{}, size: map[*msg.Msg]int{}, before: map[*msg.Msg]int{},
			at: map[int]uint64{}, done: map[int]bool{}, ends: ends}
		for range 300 {
			w.step()
		}
		for i := 0; len(w.open) > 0; i++ {
			if i > 1000 {
				w.fatalf("%d messages do not end: %+v", len(w.open), w.c.Info())
			}
			w.hold, w.now = false, w.now+20e6
			w.c.Tick(w.now)
			w.run()
			w.receive()
			w.ack()
			w.look()
		}
		if w.c.cuts.N != 0 || w.c.cuts.Runs != nil || w.c.Info().Unacked+w.c.Info().Queued > 1 {
			w.fatalf("%d parts left, %+v", w.c.cuts.N, w.c.Info())
		}
		split += w.split
	}
	for _, o := range []msg.Outcome{msg.Acked, msg.Lost, msg.GaveUp, msg.Withdrawn} {
		if ends[o] == 0 {
			t.Errorf("never saw %v", o)
		}
	}
	if split == 0 {
		t.Error("never saw a run with two outcomes")
	}
	t.Log(ends, split)
}
