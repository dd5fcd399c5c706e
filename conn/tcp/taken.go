package tcp

import (
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/conn/msg"
)

// When a message counts as taken. The kernel asks no more of a message than that
// the peer's TCP has acknowledged it (tcp_send.c rds_tcp_is_acked). But a host's TCP
// takes, and acknowledges, what comes by a connection that nobody has accepted yet,
// and that its RDS resets when it looks at it: because a lane is still down, or up,
// or because it has given up that attempt. What was acknowledged there is gone, and
// nobody says so. So acknowledgements of a connection count only when the peer's RDS
// has sent something on it: it has taken the connection then, and reads it to its
// end. For it to have something to send, each side begins each connection with a
// handshake ping; the answer comes on the same one.

const (
	firstAckWait = 100_000    // ns between looks at what the peer's TCP has acked,
	lastAckWait  = 20_000_000 // while it has acked nothing more

	// How long, ns, acknowledgements of a connection on which the peer is silent
	// wait: a peer may ignore pings. One that answered one before answers this.
	silentNs   = 1_000_000_000
	answeredNs = 30_000_000_000
)

// acks says when to look at what the peer's TCP has acknowledged.
type acks struct {
	at   int64 // 0: nothing waits for it
	wait int64 // from one look to the next
}

// heard says that the acknowledgements of l's connection count.
func (l *lane) heard() bool {
	c := l.c
	if l.lived {
		return true
	}
	wait := int64(silentNs)
	if c.peer.answers && l.open > 0 {
		wait = answeredNs
	}
	return l.state == conn.Up && c.now-l.upAt >= wait
}

func (l *lane) armAck() {
	if l.state == conn.Up && l.acks.at == 0 && l.out.unacked.N > 0 {
		if l.acks.wait == 0 {
			l.acks.wait = firstAckWait
		}
		l.acks.at = l.c.now + l.acks.wait
	}
}

// checkAcks ends the messages that the peer's TCP has acknowledged.
func (l *lane) checkAcks() {
	if l.out.unacked.N == 0 || !l.heard() {
		return
	}
	n, err := l.stream.Unacked()
	if err != nil || uint64(n) > l.out.written {
		return
	}
	acked := l.out.written - uint64(n)
	for m := l.out.unacked.Head; m != nil && m.Track.End <= acked; m = l.out.unacked.Head {
		l.out.unacked.Remove(m)
		l.out.lastAck = m.Track.Seq
		l.c.finish(m, msg.Acked)
	}
	if l.out.unacked.N == 0 {
		l.acks.at, l.acks.wait = 0, 0
	}
}
