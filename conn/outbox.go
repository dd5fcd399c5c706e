package conn

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

// outbox has the messages on their way to the peer. Each is on one of the lists, in
// a stopped port's, half sent, or ending.
type outbox struct {
	nextTx   uint64      // next sequence to assign
	rtx      msg.List    // sequence assigned; goes first, in order
	notices  msg.List    // NOSOCK, REFUSED, BOUND and ATOMIC_RESULT
	control  msg.List    // GRANT, REVOKE, REVOKED
	queue    msg.List    // datagrams and operations
	unacked  msg.List    // posted, by sequence
	frag     *msg.Msg    // half sent
	untilAsk int         // datagrams to send until one asks for an ack
	h        wire.Header // of the frame that is being put together
}

// askAck decides whether the message of p, n datagrams that are sent now, asks for an
// ack.
func (o *outbox) askAck(p *msg.Track, n int) {
	switch {
	case p.Flags&wire.FlagRetransmitted != 0:
		p.Flags |= wire.FlagAckRequired
	case o.untilAsk < n:
		p.Flags |= wire.FlagAckRequired
		o.untilAsk = askEvery
	default:
		o.untilAsk -= n
	}
}

// askEvery: the first message of a connection asks for an ack, then every one
// behind askEvery others, as the kernel's (send.c, max_unacked_packets). Other than there the count
// starts anew when the peer has acked every message: as long as its own messages carry the acks, it
// needs no frame for one alone. Messages sent again always ask. A run counts as its datagrams, and
// asks if one of them would:
// so acks are as frequent as if each had been sent by itself, but for those that one
// ack of the whole run saves. Long datagrams are acked by Config.AckBytes, in runs or
// not.
const askEvery = 8

// n is how many messages there are, those in stopped ports aside.
func (o *outbox) n() int { return o.rtx.N + o.notices.N + o.control.N + o.queue.N + o.unacked.N }

// wanted reports whether the host waits for one of them.
func (o *outbox) wanted() bool {
	return o.rtx.Wanted()+o.notices.Wanted()+o.control.Wanted()+o.queue.Wanted()+o.unacked.Wanted() > 0
}

// number gives m the next sequence.
func (o *outbox) number(m *msg.Msg) {
	m.Track.Seq = o.nextTx
	o.nextTx++
}

// announce gives the notices and control messages that wait their sequences, and
// returns the highest sequence of a message that the peer has to wait for.
func (o *outbox) announce() uint64 {
	for _, l := range []*msg.List{&o.notices, &o.control} {
		for m := l.Head; m != nil; m = l.Head {
			l.Remove(m)
			o.number(m)
			o.rtx.Push(m)
		}
	}
	for m := o.rtx.Tail; m != nil; m = m.Track.Prev {
		if m.Internal != 0 {
			return m.Track.Seq
		}
	}
	return 0
}

// rewind has what is unacked go first on the next connection.
func (o *outbox) rewind() {
	for m := o.unacked.Head; m != nil; m = m.Track.Next {
		m.Track.State, m.Track.Sent = msg.Queued, 0
	}
	o.rtx.Prepend(&o.unacked)
}
