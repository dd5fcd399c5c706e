package daemon

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/stats"
)

// publishStats brings gauges and sums up to date and copies all counters to the
// statistics mapping. wall is unix time in nanoseconds.
func (e *Engine) publishStats(wall int64) {
	c := &e.st.C
	c[stats.Clients] = uint64(len(e.clients))
	c[stats.Sockets] = uint64(e.sockets())
	c[stats.Peers] = uint64(len(e.peersV))
	c[stats.HeldBytes] = uint64(e.overB)
	c[stats.PoolBytes] = uint64(len(e.sendMem) + len(e.recvMem))
	c[stats.QueuedMessages], c[stats.QueuedBytes], c[stats.OpsOutstanding] = uint64(e.sndMsgs), uint64(e.sndBytes), uint64(e.ops)
	for _, f := range connCounters {
		c[f.to] = f.local(e)
	}
	for _, p := range e.peersV {
		s := p.c.Stats()
		for _, f := range connCounters {
			c[f.to] += *f.from(s)
		}
	}
	e.countTurnedAway(wall)
	e.st.Publish(wall)
}

// connCounters are the counters that connections keep, and what the engine
// itself adds to them.
var connCounters = []struct {
	to    stats.Counter
	from  func(*conn.Stats) *uint64
	local func(*Engine) uint64
}{
	{stats.ConnReset, func(s *conn.Stats) *uint64 { return &s.ConnReset }, none},
	{stats.RecvDropBadChecksum, func(s *conn.Stats) *uint64 { return &s.RecvDropChecksum }, none},
	{stats.RecvDropOldSeq, func(s *conn.Stats) *uint64 { return &s.RecvDropOldSeq }, none},
	{stats.RecvDropNoSock, func(s *conn.Stats) *uint64 { return &s.RecvDropNoSock }, func(e *Engine) uint64 { return e.localNoSock }},
	{stats.RecvAckRequired, func(s *conn.Stats) *uint64 { return &s.RecvAckRequired }, none},
	{stats.RecvPing, func(s *conn.Stats) *uint64 { return &s.RecvPing }, func(e *Engine) uint64 { return e.localPings }},
	{stats.SendAckRequired, func(s *conn.Stats) *uint64 { return &s.SendAckRequired }, none},
	{stats.SendFrames, func(s *conn.Stats) *uint64 { return &s.SendFrames }, none},
	{stats.RecvFrames, func(s *conn.Stats) *uint64 { return &s.RecvFrames }, none},
	{stats.Retransmitted, func(s *conn.Stats) *uint64 { return &s.Retransmitted }, none},
	{stats.MsgLost, func(s *conn.Stats) *uint64 { return &s.Lost }, none},
	{stats.NoSockReceived, func(s *conn.Stats) *uint64 { return &s.NoSock }, none},
	{stats.RefusedSent, func(s *conn.Stats) *uint64 { return &s.RecvRefused }, func(e *Engine) uint64 { return e.localRefused }},
	{stats.RefusedReceived, func(s *conn.Stats) *uint64 { return &s.Refusals }, none},
	{stats.CongUpdateQueued, func(s *conn.Stats) *uint64 { return &s.CongUpdateQueued }, none},
	{stats.CongUpdateReceived, func(s *conn.Stats) *uint64 { return &s.CongUpdateReceived }, none},
	{stats.ProtocolErrors, func(s *conn.Stats) *uint64 { return &s.ProtocolErrors }, none},
	{stats.SendImmediateRetry, func(s *conn.Stats) *uint64 { return &s.TxThrottle }, none},
}

func none(*Engine) uint64 { return 0 }

// sockets counts the bound sockets.
func (e *Engine) sockets() int {
	n := 0
	for _, l := range e.localsV {
		n += l.ports.n
	}
	return n
}
