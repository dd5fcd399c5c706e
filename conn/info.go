package conn

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/internal/timer"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/verbs"
)

// Stats are a connection's counters since it was made. A counter that Linux RDS has
// too names it in its comment. Where a comment says messages, a run counts as its
// datagrams.
type Stats struct {
	SendQueued         uint64 // send_queued: messages passed to Send
	SendRDMA           uint64 // send_rdma: operations posted
	SendRDMABytes      uint64 // send_rdma_bytes: of RDMA WRITEs posted
	RecvRDMABytes      uint64 // recv_rdma_bytes: of RDMA READs posted
	SendPong           uint64 // send_pong
	SendFrames         uint64 // SENDs posted
	SendMsgs           uint64 // messages posted whole, again ones included
	SendBytes          uint64 // payload bytes of them
	SendAckRequired    uint64 // send_ack_required: headers posted that ask for an ack
	Retransmitted      uint64 // messages posted again after a reconnect
	RecvFrames         uint64 // SENDs received
	RecvQueued         uint64 // recv_queued: messages the host accepted
	RecvBytes          uint64 // payload bytes of them
	RecvDropOldSeq     uint64 // recv_drop_old_seq: duplicates dropped
	RecvDropNoSock     uint64 // recv_drop_no_sock: answered with NOSOCK
	RecvRefused        uint64 // answered with REFUSED
	RecvDropChecksum   uint64 // recv_drop_bad_checksum
	RecvAckRequired    uint64 // recv_ack_required: headers received that ask for an ack
	RecvPing           uint64 // recv_ping
	AckSent            uint64 // ib_ack_sent: frames that carry only an ack or credits
	AckReceived        uint64 // ib_ack_received
	NoSock             uint64 // own messages that found no socket
	Refusals           uint64 // own messages that were refused, to be sent again
	Lost               uint64 // own messages lost by a restart of the peer
	OpsDropped         uint64 // own operations that ended Dropped
	OpsUnknown         uint64 // own operations that ended Unknown
	CongUpdateQueued   uint64 // cong_update_queued
	CongUpdateReceived uint64 // cong_update_received
	TxThrottle         uint64 // ib_tx_throttle: sending stopped for want of credits
	TxRingFull         uint64 // ib_tx_ring_full: sending stopped by a full send queue
	ConnReset          uint64 // conn_reset: established connections that ended
	ConnectRaced       uint64 // ib_connect_raced: crossing connects
	ListenClosedStale  uint64 // ib_listen_closed_stale: requests that met an established connection
	ConnectFailed      uint64 // attempts that failed
	ProtocolErrors     uint64 // connections broken off because the peer broke the protocol
}

// Ended counts how n messages of the host ended.
func (s *Stats) Ended(o msg.Outcome, n int) {
	switch o {
	case msg.NoSock:
		s.NoSock += uint64(n)
	case msg.Lost:
		s.Lost += uint64(n)
	case msg.Dropped:
		s.OpsDropped++
	case msg.Unknown:
		s.OpsUnknown++
	}
}

// Info is a snapshot of a connection, to be shown to people.
type Info struct {
	Local, Remote  netip.Addr
	Lane, Path     uint8
	State          State
	Ready          bool   // handshake complete
	Kernel         bool   // the peer of the last connection was a Linux kernel
	Since          int64  // when State began
	Instance       uint64 // the peer's daemon instance, 0 = never met
	Met            bool   // there was a connection once
	NextTx         uint64 // next sequence to assign
	LastRx         uint64 // highest sequence received and handed up
	LastAck        uint64 // highest own sequence acked
	Queued         int    // datagrams not posted on this connection
	QueuedBytes    int
	Unacked        int // datagrams posted and not settled
	UnackedBytes   int
	Stopped        int    // of the queued: stopped after REFUSED
	Credits        uint32 // SENDs the peer has room for
	CreditsOwed    uint32 // receive buffers to be granted
	OutstandingWRs int
	MaxSend        int
	RetryAt        int64 // next attempt while Down, 0 = none
	LastError      error // why the last connection or attempt ended
	RTT            RTT
	Served         verbs.Served // by RDMA of the peer, here, since this daemon runs
	Oldest         int64        // Msg.At of the oldest message of the host that is not acked, 0 = none
	Stats          Stats
}

// Info returns a snapshot of the connection, in constant time.
func (c *Conn) Info() Info {
	i := Info{
		Local: c.cfg.Local, Remote: c.cfg.Remote, Lane: c.cfg.Lane, Path: c.cfg.Path,
		State: c.state, Ready: c.Ready(), Kernel: c.k.on, Since: c.since,
		Instance: c.peer, Met: c.peer != 0, NextTx: c.out.nextTx, LastRx: c.in.last, LastAck: c.settling.acked,
		Unacked: c.out.unacked.Datagrams(), UnackedBytes: c.out.unacked.Bytes,
		Credits: c.credits.left, CreditsOwed: c.credits.owed,
		OutstandingWRs: c.sq.used, MaxSend: c.link.maxSend,
		RetryAt: c.redial.At, LastError: c.why, RTT: c.rtt.RTT, Oldest: c.out.unacked.Oldest(), Stats: c.stats,
	}
	i.Served = c.served
	if c.link.qp != nil {
		s := c.link.qp.Stats()
		i.Served.Add(s.Written, s.Read)
	}
	for _, l := range c.kept() {
		i.Queued += l.Datagrams()
		i.QueuedBytes += l.Bytes
		i.Oldest = timer.Sooner(i.Oldest, l.Oldest())
	}
	p := &c.stops.ports
	i.Stopped = p.Refused.Datagrams
	i.Queued += p.Refused.Datagrams
	i.QueuedBytes += p.Refused.Bytes
	i.Oldest = timer.Sooner(i.Oldest, p.OldestRefused())
	return i
}
