package conn

import "github.com/rdsd/rdsd/conn/wire"

// outbox has the messages on their way to the peer. Each is on one of the lists, in
// a stopped port's, half sent, or ending.
type outbox struct {
	nextTx   uint64  // next sequence to assign
	rtx      msgList // sequence assigned; goes first, in order
	notices  msgList // NOSOCK, REFUSED and BOUND
	control  msgList // GRANT, REVOKE, REVOKED
	queue    msgList // datagrams and operations
	unacked  msgList // posted, by sequence
	frag     *Msg    // half sent
	untilAsk int     // messages to send until one asks for an ack
	h        wire.Header
}
