package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// outbox has the messages on their way to the peer. Each is on one of the lists, in
// a stopped port's, half sent, or ending.
type outbox struct {
	nextTx   uint64      // next sequence to assign
	rtx      msgList     // sequence assigned; goes first, in order
	notices  msgList     // NOSOCK, REFUSED, BOUND and ATOMIC_RESULT
	control  msgList     // GRANT, REVOKE, REVOKED
	queue    msgList     // datagrams and operations
	unacked  msgList     // posted, by sequence
	frag     *Msg        // half sent
	untilAsk int         // datagrams to send until one asks for an ack
	h        wire.Header // of the frame that is being put together
}

// askAck decides whether the message of p, n datagrams that are sent now, asks for an
// ack.
func (o *outbox) askAck(p *msgPriv, n int) {
	switch {
	case p.flags&wire.FlagRetransmitted != 0:
		p.flags |= wire.FlagAckRequired
	case o.untilAsk < n:
		p.flags |= wire.FlagAckRequired
		o.untilAsk = askEvery
	default:
		o.untilAsk -= n
	}
}

// askEvery: the first message of a connection asks for an ack, then every one
// behind askEvery others, as the kernel's (send.c, max_unacked_packets). Those
// sent again always ask. A run counts as its datagrams, and asks if one of them would:
// so acks are as frequent as if each had been sent by itself, but for those that one
// ack of the whole run saves. Long datagrams are acked by Config.AckBytes, in runs or
// not.
const askEvery = 8

// n is how many messages there are, those in stopped ports aside.
func (o *outbox) n() int { return o.rtx.n + o.notices.n + o.control.n + o.queue.n + o.unacked.n }

// number gives m the next sequence.
func (o *outbox) number(m *Msg) {
	m.priv.seq = o.nextTx
	o.nextTx++
}

// announce gives the notices and control messages that wait their sequences, and
// returns the highest sequence of a message that the peer has to wait for.
func (o *outbox) announce() uint64 {
	for _, l := range []*msgList{&o.notices, &o.control} {
		for m := l.head; m != nil; m = l.head {
			l.remove(m)
			o.number(m)
			o.rtx.push(m)
		}
	}
	for m := o.rtx.tail; m != nil; m = m.priv.prev {
		if m.Internal != 0 {
			return m.priv.seq
		}
	}
	return 0
}

// rewind has what is unacked go first on the next connection.
func (o *outbox) rewind() {
	for m := o.unacked.head; m != nil; m = m.priv.next {
		m.priv.state, m.priv.sent = msgQueued, 0
		if m.Internal == wire.TypeResult && mutant.On(mutant.ResultForgotten) {
			m.Internal = wire.TypeBound + 100 // a type that nobody knows
		}
	}
	o.rtx.prepend(&o.unacked)
}
