package engine

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

// watching is what operators are shown, and the figures it is made of. Engine-owned.
type watching struct {
	e      *Engine
	counts counts
	lists  *statLists // nil: none are kept
	turned turnedAway
	served verbs.Served // by RDMA of others with memory here, since the last PublishStats
}

// counts are the sums of the connections' counters.
type counts struct {
	sum       conn.Stats // of all, those that have ended included, and of what stayed on this host
	uncounted []*peer    // touched since their counters were added to sum
}

// PublishStats brings gauges and sums up to date and copies all counters to the
// statistics mapping.
func (e *Engine) PublishStats(wall Wall) {
	e.watch.countAcked()
	c := &e.st.C
	c[stats.Clients] = uint64(len(e.clients.all))
	c[stats.Sockets] = uint64(e.watch.sockets())
	c[stats.Peers] = uint64(len(e.peers.all))
	c[stats.HeldBytes] = uint64(e.rx.overflow.used)
	c[stats.PoolBytes] = uint64(len(e.sendBufs.mem) + len(e.ctlBufs.mem))
	for _, r := range e.devices.rails {
		c[stats.PoolBytes] += uint64(len(r.recvMem))
	}
	c[stats.QueuedMessages], c[stats.QueuedBytes], c[stats.OpsOutstanding] = uint64(e.tx.queued.msgs), uint64(e.tx.queued.bytes), uint64(e.tx.queued.ops)
	for i, p := range e.watch.counts.uncounted {
		e.watch.counts.uncounted[i] = nil
		p.uncounted = false
		e.watch.count(p)
	}
	e.watch.counts.uncounted = e.watch.counts.uncounted[:0]
	for _, f := range &connCounters {
		c[f.to] = *f.from(&e.watch.counts.sum)
	}
	c[stats.PlacedBytes] += e.watch.served.Written
	c[stats.ServedBytes] += e.watch.served.Read
	e.watch.served = verbs.Served{}
	e.watch.countTurnedAway(wall)
	e.st.Publish(int64(wall))
}

// connCounters are the counters that connections keep. The engine's are their
// sums, those that have ended included: a counter never falls. Only connections
// that were touched since are looked at, for there may be thousands, and this is
// a hundred times a second.
var connCounters = [...]struct {
	to   stats.Counter
	from func(*conn.Stats) *uint64
}{
	{stats.ConnReset, func(s *conn.Stats) *uint64 { return &s.ConnReset }},
	{stats.RecvDropBadChecksum, func(s *conn.Stats) *uint64 { return &s.RecvDropChecksum }},
	{stats.RecvDropOldSeq, func(s *conn.Stats) *uint64 { return &s.RecvDropOldSeq }},
	{stats.RecvDropNoSock, func(s *conn.Stats) *uint64 { return &s.RecvDropNoSock }},
	{stats.RecvAckRequired, func(s *conn.Stats) *uint64 { return &s.RecvAckRequired }},
	{stats.RecvPing, func(s *conn.Stats) *uint64 { return &s.RecvPing }},
	{stats.SendAckRequired, func(s *conn.Stats) *uint64 { return &s.SendAckRequired }},
	{stats.SendFrames, func(s *conn.Stats) *uint64 { return &s.SendFrames }},
	{stats.RecvFrames, func(s *conn.Stats) *uint64 { return &s.RecvFrames }},
	{stats.Retransmitted, func(s *conn.Stats) *uint64 { return &s.Retransmitted }},
	{stats.MsgLost, func(s *conn.Stats) *uint64 { return &s.Lost }},
	{stats.NoSockReceived, func(s *conn.Stats) *uint64 { return &s.NoSock }},
	{stats.RefusedSent, func(s *conn.Stats) *uint64 { return &s.RecvRefused }},
	{stats.RefusedReceived, func(s *conn.Stats) *uint64 { return &s.Refusals }},
	{stats.CongUpdateQueued, func(s *conn.Stats) *uint64 { return &s.CongUpdateQueued }},
	{stats.CongUpdateReceived, func(s *conn.Stats) *uint64 { return &s.CongUpdateReceived }},
	{stats.ProtocolErrors, func(s *conn.Stats) *uint64 { return &s.ProtocolErrors }},
	{stats.SendDelayedRetry, func(s *conn.Stats) *uint64 { return &s.TxRingFull }},
	{stats.SendImmediateRetry, func(s *conn.Stats) *uint64 { return &s.TxThrottle }},
}

// connCounts are the values of connCounters.
type connCounts [len(connCounters)]uint64

// count adds what p's connection counted since it was counted last.
func (w *watching) count(p *peer) {
	s := p.c.Stats()
	for i, f := range &connCounters {
		n := *f.from(s)
		*f.from(&w.counts.sum) += n - p.counted[i]
		p.counted[i] = n
	}
}

// sockets counts the bound sockets.
func (w *watching) sockets() int {
	n := 0
	for _, l := range w.e.addrs.all {
		n += l.ports.Len()
	}
	return n
}
