// Package stats publishes the daemon's statistics in a file that other processes map: all
// counters, the engine's heartbeat and a histogram of its turn times. They can be read
// while the daemon is stuck and after it died.
//
// The engine counts in words that it owns (Block.C), and Block.Publish copies them to the
// mapping. Readers (rdsctl, the metrics collector) load the mapping's words atomically.
// They never touch engine state.
package stats

// Version is the version of the mapping's layout. The mapping contains the table of names,
// so a new counter at the end does not change the version.
const Version = 1

// Counter is an index into Block.C.
type Counter int

// The first 36 counters are the kernel's (net/rds/stats.c), with its order and names. Those
// that cannot change in user space stay 0. The rest are rdsd's. New counters go to the end,
// because the order is part of the format.
const (
	ConnReset Counter = iota
	RecvDropBadChecksum
	RecvDropOldSeq
	RecvDropNoSock
	RecvDropDeadSock
	RecvDeliverRaced
	RecvDelivered
	RecvQueued
	RecvImmediateRetry
	RecvDelayedRetry
	RecvAckRequired
	RecvRDMABytes
	RecvPing
	SendQueueEmpty
	SendQueueFull
	SendLockContention
	SendLockQueueRaced
	SendImmediateRetry
	SendDelayedRetry
	SendDropAcked
	SendAckRequired
	SendQueued
	SendRDMA
	SendRDMABytes
	SendPong
	PageRemainderHit
	PageRemainderMiss
	CopyToUser
	CopyFromUser
	CongUpdateQueued
	CongUpdateReceived
	CongSendError
	CongSendBlocked
	RecvBytesAddedToSock
	RecvBytesFreedFromSock
	SendStuckRM

	SendBytes
	RecvBytes
	SendFrames
	RecvFrames
	SendAcked
	Retransmitted
	MsgCancelled
	MsgLost
	NoSockReceived
	RefusedSent
	RefusedReceived
	LocalMessages
	RDMAWrites
	RDMAReads
	LocalRDMABytes
	OpSuccess
	OpFailed
	OpRefused
	OpCanceled
	OpDropped
	OpUnknown
	GrantsSent
	GrantsReceived
	Revokes
	PeerConnects
	PeerRestarts
	BadHandshakes
	ProtocolErrors
	ClientsOpened
	ClientViolations
	QuotaRefused
	BindRefused
	Doorbells
	EngineSleeps
	EngineTurns
	EngineIdleTurns
	EngineStalls

	Clients
	Sockets
	Peers
	PeersUp
	CongestedPorts
	Regions
	RegisteredBytes
	SharedBytes
	PoolBytes
	HeldBytes
	QueuedMessages
	QueuedBytes
	OpsOutstanding

	PeerHolds
	RecvDropMalformed

	EngineSlowYields
	EngineStrategy
	EngineWay
	EngineLookNs
	EngineBlockNs

	LogDropped

	PlacedBytes
	ServedBytes

	IOThreadCalls
	IOThreadSlow

	NumCounters // how many there are
)

// Gauge reports whether the word may fall. A counter only rises.
func (c Counter) Gauge() bool {
	return c >= Clients && c <= OpsOutstanding || c >= EngineStrategy && c <= EngineBlockNs
}

// String is the counter's name in the mapping, rdsctl and docs.
func (c Counter) String() string {
	if c < 0 || c >= NumCounters {
		return "unknown"
	}
	return table[c].name
}

// Help is a sentence that says what is counted.
func (c Counter) Help() string {
	if c < 0 || c >= NumCounters {
		return ""
	}
	return table[c].help
}

// table has the names, of at most maxName bytes, and what is counted.
var table = [NumCounters]struct{ name, help string }{
	ConnReset:              {"conn_reset", "Connections broken, for whatever reason."},
	RecvDropBadChecksum:    {"recv_drop_bad_checksum", "Header checksum failures."},
	RecvDropOldSeq:         {"recv_drop_old_seq", "Duplicates dropped."},
	RecvDropNoSock:         {"recv_drop_no_sock", "Messages for a port nobody has bound."},
	RecvDropDeadSock:       {"recv_drop_dead_sock", "Always 0: counted in recv_drop_no_sock."},
	RecvDropMalformed:      {"rdsd_recv_drop_malformed", "Runs dropped because the sender changed their frames."},
	RecvDeliverRaced:       {"recv_deliver_raced", "Always 0 in user space."},
	RecvDelivered:          {"recv_delivered", "Messages the clients returned as read."},
	RecvQueued:             {"recv_queued", "Messages put on a socket."},
	RecvImmediateRetry:     {"recv_immediate_retry", "Always 0 in user space."},
	RecvDelayedRetry:       {"recv_delayed_retry", "Always 0 in user space."},
	RecvAckRequired:        {"recv_ack_required", "Frames that asked for an ack."},
	RecvRDMABytes:          {"recv_rdma_bytes", "Bytes read by our RDMA READs."},
	RecvPing:               {"recv_ping", "Pings answered."},
	SendQueueEmpty:         {"send_queue_empty", "A socket's send queue fell to 0."},
	SendQueueFull:          {"send_queue_full", "Always 0: the client library decides, and tells the application."},
	SendLockContention:     {"send_lock_contention", "Always 0 in user space."},
	SendLockQueueRaced:     {"send_lock_queue_raced", "Always 0 in user space."},
	SendImmediateRetry:     {"send_immediate_retry", "Posts put off: no credit."},
	SendDelayedRetry:       {"send_delayed_retry", "Posts put off: no room in the send queue."},
	SendDropAcked:          {"send_drop_acked", "Always 0 in user space."},
	SendAckRequired:        {"send_ack_required", "Messages sent with ACK_REQUIRED."},
	SendQueued:             {"send_queued", "Messages queued by clients."},
	SendRDMA:               {"send_rdma", "RDMA operations accepted."},
	SendRDMABytes:          {"send_rdma_bytes", "Bytes written by our RDMA WRITEs."},
	SendPong:               {"send_pong", "Pings and pongs the daemon made."},
	PageRemainderHit:       {"page_remainder_hit", "Always 0 in user space."},
	PageRemainderMiss:      {"page_remainder_miss", "Always 0 in user space."},
	CopyToUser:             {"copy_to_user", "Payload bytes copied to clients."},
	CopyFromUser:           {"copy_from_user", "Payload bytes copied from clients."},
	CongUpdateQueued:       {"cong_update_queued", "Congestion maps queued."},
	CongUpdateReceived:     {"cong_update_received", "Congestion maps received."},
	CongSendError:          {"cong_send_error", "Always 0: the client library decides, and tells the application."},
	CongSendBlocked:        {"cong_send_blocked", "Always 0: the client library decides, and tells the application."},
	RecvBytesAddedToSock:   {"recv_bytes_added_to_sock", "Receive accounting: bytes queued."},
	RecvBytesFreedFromSock: {"recv_bytes_freed_fromsock", "Receive accounting: bytes released."},
	SendStuckRM:            {"send_stuck_rm", "Always 0 in user space."},

	SendBytes:        {"rdsd_send_bytes", "Payload bytes of SendQueued."},
	RecvBytes:        {"rdsd_recv_bytes", "Payload bytes of RecvQueued."},
	SendFrames:       {"rdsd_send_frames", "SENDs posted, ack and credit frames included."},
	RecvFrames:       {"rdsd_recv_frames", "SENDs received."},
	SendAcked:        {"rdsd_send_acked", "Messages acked by their peer."},
	Retransmitted:    {"rdsd_retransmitted", "Messages sent again after a reconnect."},
	MsgCancelled:     {"rdsd_messages_cancelled", "Messages withdrawn: cancel, close, shutdown."},
	MsgLost:          {"rdsd_messages_lost", "Messages sent, unacked and lost by a peer's restart."},
	NoSockReceived:   {"rdsd_no_socket_received", "Our messages that found no socket at the peer."},
	RefusedSent:      {"rdsd_refused_sent", "Messages refused: socket over its hard limit."},
	RefusedReceived:  {"rdsd_refused_received", "Our messages refused by the peer."},
	LocalMessages:    {"rdsd_local_messages", "Messages delivered on this host."},
	RDMAWrites:       {"rdsd_rdma_writes", "RDMA WRITE operations accepted."},
	RDMAReads:        {"rdsd_rdma_reads", "RDMA READ operations accepted."},
	LocalRDMABytes:   {"rdsd_local_rdma_bytes", "RDMA bytes copied on this host."},
	OpSuccess:        {"rdsd_op_success", "Operations settled SUCCESS."},
	OpFailed:         {"rdsd_op_failed", "Operations settled REMOTE_ERROR or OTHER_ERROR by a completion."},
	OpRefused:        {"rdsd_op_refused", "Operations refused before they were posted: no grant, bounds, rights."},
	OpCanceled:       {"rdsd_op_canceled", "Operations settled CANCELED."},
	OpDropped:        {"rdsd_op_dropped", "Operations settled DROPPED."},
	OpUnknown:        {"rdsd_op_unknown", "Operations settled UNKNOWN."},
	GrantsSent:       {"rdsd_grants_sent", "GRANTs queued to peers."},
	GrantsReceived:   {"rdsd_grants_received", "GRANTs of peers."},
	Revokes:          {"rdsd_revokes", "Registrations released."},
	PeerConnects:     {"rdsd_peer_connects", "Handshakes completed."},
	PeerRestarts:     {"rdsd_peer_restarts", "Peers that came back with another instance id."},
	BadHandshakes:    {"rdsd_bad_handshakes", "Incoming connections turned away or broken off."},
	ProtocolErrors:   {"rdsd_protocol_errors", "Connections broken for what the peer sent."},
	ClientsOpened:    {"rdsd_clients_opened", "Client sessions accepted."},
	ClientViolations: {"rdsd_client_violations", "Client sessions ended for breaking the rules."},
	QuotaRefused:     {"rdsd_quota_refused", "Client requests over a limit."},
	BindRefused:      {"rdsd_bind_refused", "Binds refused."},
	Doorbells:        {"rdsd_doorbells", "Times a sleeping client was woken."},
	EngineSleeps:     {"rdsd_engine_sleeps", "Times the engine blocked."},
	EngineTurns:      {"rdsd_engine_turns", "Turns of the engine's loop."},
	EngineIdleTurns:  {"rdsd_engine_idle_turns", "Turns that found nothing to do."},
	EngineStalls:     {"rdsd_engine_stalls", "Turns longer than the stall limit."},
	EngineSlowYields: {"rdsd_engine_slow_yields", "Times the engine yielded its CPU and did not get it back within 700 microseconds, while it may choose how to wait."},
	EngineStrategy:   {"rdsd_engine_strategy", "How the engine is to wait: 0 auto, 1 block, 2 yield, 3 spin."},
	EngineWay:        {"rdsd_engine_way", "How the engine waits at present: 1 block, 2 yield, 3 spin."},
	EngineLookNs:     {"rdsd_engine_look_ns", "Mean time of the engine's waits that yield; 0: not measured."},
	EngineBlockNs:    {"rdsd_engine_block_ns", "Mean time of the engine's waits that block at once; 0: not measured."},
	LogDropped:       {"rdsd_log_dropped", "Lines of the log that were dropped, because nobody read standard error."},

	Clients:         {"rdsd_clients", "Client sessions."},
	Sockets:         {"rdsd_sockets", "Bound sockets."},
	Peers:           {"rdsd_peers", "Known peers."},
	PeersUp:         {"rdsd_peers_up", "Peers with a connection that is up."},
	CongestedPorts:  {"rdsd_congested_ports", "Local ports over their receive limit."},
	Regions:         {"rdsd_regions", "Registered regions."},
	RegisteredBytes: {"rdsd_registered_bytes", "Bytes of client buffers (Alloc)."},
	SharedBytes:     {"rdsd_shared_bytes", "Bytes of client segments, tables and windows."},
	PoolBytes:       {"rdsd_pool_bytes", "Bytes of the daemon's own send and receive pools."},
	HeldBytes:       {"rdsd_held_bytes", "Arrived payload kept in daemon memory."},
	QueuedMessages:  {"rdsd_queued_messages", "Messages not acked yet."},
	QueuedBytes:     {"rdsd_queued_bytes", "Their payload bytes."},
	OpsOutstanding:  {"rdsd_ops_outstanding", "Operations not settled yet."},
	PlacedBytes:     {"rdsd_placed_bytes", "Bytes that RDMA of others has written here."},
	ServedBytes:     {"rdsd_served_bytes", "Bytes that RDMA of others has read here."},

	IOThreadCalls: {"rdsd_io_thread_calls", "System calls in which I/O threads (io.threads) sent or received payload."},
	IOThreadSlow:  {"rdsd_io_thread_slow", "Times an I/O thread took longer than a millisecond, as when a process takes pages away."},
	PeerHolds:     {"rdsd_peer_holds", "Times a peer was over a limit of peers.*_per_s and read no further."},
}
