package engine

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/stats"
)

// times are how long messages and operations took. Nothing reads a clock for them: they are
// as exact as a turn is short.
type times struct{ msgs, ops stats.Times }

// total is what a socket has sent or received.
type total struct{ msgs, bytes uint64 }

func (t *total) add(sum *frames.Sum) {
	t.msgs += uint64(sum.Datagrams)
	t.bytes += uint64(sum.Bytes)
}

// acked is datagrams that are not counted yet: consecutive ones of one socket to one peer that
// took the same time. Mostly that is all that one turn took in and another found acked, so
// that a message costs three comparisons.
type acked struct {
	took int64
	sock *times
	way  *times // see transport.times
	n    uint64
}

// msgTook counts the time of n datagrams of t, which are acked.
func (w *watching) msgTook(t *txMsg, n uint64) {
	e := w.e
	a, took, way := &e.tx.acked, e.now-t.m.At, t.slot.way.times()
	if took != a.took || t.sock.took != a.sock || way != a.way {
		w.countAcked()
		a.took, a.sock, a.way = took, t.sock.took, way
	}
	a.n += n
}

// countAcked adds what is not counted yet. Whoever reads the counts calls it first.
func (w *watching) countAcked() {
	e := w.e
	a := &e.tx.acked
	if a.n == 0 {
		return
	}
	b := stats.TimeBucket(a.took)
	e.st.Messages.Add(b, a.took, a.n)
	a.sock.msgs.Add(b, a.took, a.n)
	if a.way != nil {
		a.way.msgs.Add(b, a.took, a.n)
	}
	*a = acked{}
}

// passedOn is msgTook for datagrams that were delivered on this host in the turn that took
// them in.
func (w *watching) passedOn(s *socket, n uint64) {
	e := w.e
	if a := &e.tx.acked; a.took != 0 || a.sock != s.took || a.way != nil {
		w.countAcked()
		a.sock = s.took
	}
	e.tx.acked.n += n
}

// opTook counts the time of o, whose status is known. An operation that was not posted has
// none.
func (w *watching) opTook(t *txMsg, o *txOp) {
	e := w.e
	if o.at == 0 {
		return
	}
	took := e.now - o.at
	o.at = 0
	b := stats.TimeBucket(took)
	e.st.Operations.Add(b, took, 1)
	t.sock.took.ops.Add(b, took, 1)
	if way := t.slot.way.times(); way != nil {
		way.ops.Add(b, took, 1)
	}
}

// age is how long ago at was; 0 if at is 0, which means never.
func (w *watching) age(at int64) int64 {
	if at == 0 {
		return 0
	}
	return max(w.e.now-at, 1)
}

// oldest is when the oldest message of s was taken in that is not acked; 0: there is none.
func (s *socket) oldest() int64 {
	if s.txs.N == 0 {
		return 0
	}
	return s.txs.Head.Of.m.At
}

// oldestOf is when the oldest message to p was taken in that is not acked, where handed is
// the oldest that its connection has; 0: there is none. Of those that wait for their turn it
// knows the first.
func (p *peer) oldestOf(handed int64) int64 {
	if sl := p.flows.first(); sl != nil && sl.q.N > 0 {
		if at := sl.q.Head.Of.m.At; handed == 0 || at < handed {
			return at
		}
	}
	return handed
}

// probeAfter: a look at a peer whose round-trip time is older than this measures it anew.
const probeAfter = 10_000_000_000

// probe measures the round-trip time to p for the next look, if the last one is old. When
// the table of peers fills up, idle peers are forgotten, and a probe would end their idleness.
func (w *watching) probe(p *peer, measured int64) {
	e := w.e
	if !e.peers.crowdedPeers() && (measured == 0 || e.now-measured > probeAfter) {
		p.c.Probe()
	}
}

// copy is t's content; empty if t is nil.
func (t *times) copy() (c times) {
	if t != nil {
		c = *t
	}
	return c
}

// in sets the distributions of an item of a list for rdsctl. They are brought into that form
// outside of the engine's goroutine.
func (t *times) in(msgs, ops *ctl.Times) { *msgs, *ops = ctl.TimesOf(&t.msgs), ctl.TimesOf(&t.ops) }

// handOver has t go over.
func (t *times) handOver(s *handover.State) {
	s.Table(t.msgs.Counts[:])
	s.U64(&t.msgs.Sum)
	s.Table(t.ops.Counts[:])
	s.U64(&t.ops.Sum)
}
