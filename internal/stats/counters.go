// Package stats is the daemon's read-only statistics mapping: a file that holds
// every counter, the engine's heartbeat and its turn-time histogram, and that
// can be read while the daemon is stuck, and after it died.
//
// The engine counts in plain words it owns (Block.C) and copies them to the
// mapping with Block.Publish; readers (rdsctl, the metrics collector) load the
// mapping's words atomically and never touch engine state.
package stats

// Version of the mapping's layout. The name table travels in the mapping, so
// appending a counter does not change it.
const Version = 1

// Counter is an index into Block.C.
type Counter int

// The first 36 are the kernel's (net/rds/stats.c), in its order and with its
// names; what cannot happen in user space stays 0. The rest are ours. New ones
// are appended: the order is part of the format.
const (
	ConnReset              Counter = iota // connections broken, for whatever reason
	RecvDropBadChecksum                   // header checksum failures
	RecvDropOldSeq                        // duplicates dropped
	RecvDropNoSock                        // messages for a port nobody has bound
	RecvDropDeadSock                      // messages for a socket that was closing
	RecvDeliverRaced                      // 0
	RecvDelivered                         // messages the clients returned as read
	RecvQueued                            // messages put on a socket
	RecvImmediateRetry                    // 0
	RecvDelayedRetry                      // 0
	RecvAckRequired                       // frames that asked for an ack
	RecvRDMABytes                         // bytes read by our RDMA READs
	RecvPing                              // pings answered
	SendQueueEmpty                        // a socket's send queue fell to 0
	SendQueueFull                         // submissions that met a full queue
	SendLockContention                    // 0
	SendLockQueueRaced                    // 0
	SendImmediateRetry                    // posts put off: no credit
	SendDelayedRetry                      // posts put off: no buffer
	SendDropAcked                         // 0
	SendAckRequired                       // messages sent with ACK_REQUIRED
	SendQueued                            // messages queued by clients
	SendRDMA                              // RDMA operations accepted
	SendRDMABytes                         // bytes written by our RDMA WRITEs
	SendPong                              // pings and pongs the daemon made
	PageRemainderHit                      // 0
	PageRemainderMiss                     // 0
	CopyToUser                            // payload bytes copied to clients
	CopyFromUser                          // payload bytes copied from clients
	CongUpdateQueued                      // congestion maps queued
	CongUpdateReceived                    // congestion maps received
	CongSendError                         // submissions to a congested port
	CongSendBlocked                       // sends that waited for a congested port
	RecvBytesAddedToSock                  // receive accounting: bytes queued
	RecvBytesFreedFromSock                // receive accounting: bytes released
	SendStuckRM                           // 0

	SendBytes        // payload bytes of SendQueued
	RecvBytes        // payload bytes of RecvQueued
	SendFrames       // SENDs posted, ack and credit frames included
	RecvFrames       // SENDs received
	SendAcked        // messages acked by their peer
	Retransmitted    // messages sent again after a reconnect
	MsgCancelled     // messages withdrawn: cancel, close, shutdown
	MsgLost          // messages sent, unacked and lost by a peer's restart
	NoSockReceived   // our messages that found no socket at the peer
	RefusedSent      // messages refused: socket over its hard limit
	RefusedReceived  // our messages refused by the peer
	LocalMessages    // messages delivered on this host
	RDMAWrites       // RDMA WRITE operations accepted
	RDMAReads        // RDMA READ operations accepted
	LocalRDMABytes   // RDMA bytes copied on this host
	OpSuccess        // operations settled SUCCESS
	OpFailed         // ... REMOTE_ERROR or OTHER_ERROR by a completion
	OpRefused        // ... refused before they were posted: no grant, bounds, rights
	OpCanceled       // ... CANCELED
	OpDropped        // ... DROPPED
	OpUnknown        // ... UNKNOWN
	GrantsSent       // GRANTs queued to peers
	GrantsReceived   // GRANTs of peers
	Revokes          // registrations released
	PeerConnects     // handshakes completed
	PeerRestarts     // peers that came back with another instance id
	BadHandshakes    // incoming connections turned away or broken off
	ProtocolErrors   // connections broken for what the peer sent
	ClientsOpened    // client sessions accepted
	ClientViolations // client sessions ended for breaking the rules
	QuotaRefused     // client requests over a limit
	BindRefused      // binds refused
	Doorbells        // eventfd writes to clients
	EngineSleeps     // times the engine blocked
	EngineTurns      // turns of the engine's loop
	EngineIdleTurns  // turns that found nothing to do
	EngineStalls     // turns longer than the stall limit

	Clients         // gauge: client sessions
	Sockets         // gauge: bound sockets
	Peers           // gauge: known peers
	PeersUp         // gauge: peers with a connection that is up
	CongestedPorts  // gauge: local ports over their receive limit
	Regions         // gauge: registered regions
	RegisteredBytes // gauge: bytes of client buffers (Alloc)
	SharedBytes     // gauge: bytes of client segments, tables and windows
	PoolBytes       // gauge: bytes of the daemon's own send and receive pools
	HeldBytes       // gauge: arrived payload kept in daemon memory
	QueuedMessages  // gauge: messages not acked yet
	QueuedBytes     // gauge: their payload bytes
	OpsOutstanding  // gauge: operations not settled yet

	NumCounters // how many there are
)

// firstGauge: everything from here on may fall.
const firstGauge = Clients

// Gauge reports that the word may fall; all others only rise.
func (c Counter) Gauge() bool { return c >= firstGauge && c < NumCounters }

// String is the counter's name in the mapping, rdsctl and docs.
func (c Counter) String() string {
	if c < 0 || c >= NumCounters {
		return "unknown"
	}
	return names[c]
}

// names: at most maxName bytes each.
var names = [NumCounters]string{
	ConnReset:              "conn_reset",
	RecvDropBadChecksum:    "recv_drop_bad_checksum",
	RecvDropOldSeq:         "recv_drop_old_seq",
	RecvDropNoSock:         "recv_drop_no_sock",
	RecvDropDeadSock:       "recv_drop_dead_sock",
	RecvDeliverRaced:       "recv_deliver_raced",
	RecvDelivered:          "recv_delivered",
	RecvQueued:             "recv_queued",
	RecvImmediateRetry:     "recv_immediate_retry",
	RecvDelayedRetry:       "recv_delayed_retry",
	RecvAckRequired:        "recv_ack_required",
	RecvRDMABytes:          "recv_rdma_bytes",
	RecvPing:               "recv_ping",
	SendQueueEmpty:         "send_queue_empty",
	SendQueueFull:          "send_queue_full",
	SendLockContention:     "send_lock_contention",
	SendLockQueueRaced:     "send_lock_queue_raced",
	SendImmediateRetry:     "send_immediate_retry",
	SendDelayedRetry:       "send_delayed_retry",
	SendDropAcked:          "send_drop_acked",
	SendAckRequired:        "send_ack_required",
	SendQueued:             "send_queued",
	SendRDMA:               "send_rdma",
	SendRDMABytes:          "send_rdma_bytes",
	SendPong:               "send_pong",
	PageRemainderHit:       "page_remainder_hit",
	PageRemainderMiss:      "page_remainder_miss",
	CopyToUser:             "copy_to_user",
	CopyFromUser:           "copy_from_user",
	CongUpdateQueued:       "cong_update_queued",
	CongUpdateReceived:     "cong_update_received",
	CongSendError:          "cong_send_error",
	CongSendBlocked:        "cong_send_blocked",
	RecvBytesAddedToSock:   "recv_bytes_added_to_sock",
	RecvBytesFreedFromSock: "recv_bytes_freed_fromsock",
	SendStuckRM:            "send_stuck_rm",

	SendBytes:        "rdsd_send_bytes",
	RecvBytes:        "rdsd_recv_bytes",
	SendFrames:       "rdsd_send_frames",
	RecvFrames:       "rdsd_recv_frames",
	SendAcked:        "rdsd_send_acked",
	Retransmitted:    "rdsd_retransmitted",
	MsgCancelled:     "rdsd_messages_cancelled",
	MsgLost:          "rdsd_messages_lost",
	NoSockReceived:   "rdsd_no_socket_received",
	RefusedSent:      "rdsd_refused_sent",
	RefusedReceived:  "rdsd_refused_received",
	LocalMessages:    "rdsd_local_messages",
	RDMAWrites:       "rdsd_rdma_writes",
	RDMAReads:        "rdsd_rdma_reads",
	LocalRDMABytes:   "rdsd_local_rdma_bytes",
	OpSuccess:        "rdsd_op_success",
	OpFailed:         "rdsd_op_failed",
	OpRefused:        "rdsd_op_refused",
	OpCanceled:       "rdsd_op_canceled",
	OpDropped:        "rdsd_op_dropped",
	OpUnknown:        "rdsd_op_unknown",
	GrantsSent:       "rdsd_grants_sent",
	GrantsReceived:   "rdsd_grants_received",
	Revokes:          "rdsd_revokes",
	PeerConnects:     "rdsd_peer_connects",
	PeerRestarts:     "rdsd_peer_restarts",
	BadHandshakes:    "rdsd_bad_handshakes",
	ProtocolErrors:   "rdsd_protocol_errors",
	ClientsOpened:    "rdsd_clients_opened",
	ClientViolations: "rdsd_client_violations",
	QuotaRefused:     "rdsd_quota_refused",
	BindRefused:      "rdsd_bind_refused",
	Doorbells:        "rdsd_doorbells",
	EngineSleeps:     "rdsd_engine_sleeps",
	EngineTurns:      "rdsd_engine_turns",
	EngineIdleTurns:  "rdsd_engine_idle_turns",
	EngineStalls:     "rdsd_engine_stalls",

	Clients:         "rdsd_clients",
	Sockets:         "rdsd_sockets",
	Peers:           "rdsd_peers",
	PeersUp:         "rdsd_peers_up",
	CongestedPorts:  "rdsd_congested_ports",
	Regions:         "rdsd_regions",
	RegisteredBytes: "rdsd_registered_bytes",
	SharedBytes:     "rdsd_shared_bytes",
	PoolBytes:       "rdsd_pool_bytes",
	HeldBytes:       "rdsd_held_bytes",
	QueuedMessages:  "rdsd_queued_messages",
	QueuedBytes:     "rdsd_queued_bytes",
	OpsOutstanding:  "rdsd_ops_outstanding",
}
