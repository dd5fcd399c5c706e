package conn

import (
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/mutant"
)

// msgState says where a message is.
type msgState uint8

const (
	msgIdle   msgState = iota // the owner's
	msgQueued                 // waits in a queue; not posted on this connection
	msgPosted                 // on the unacked list
	msgEnding                 // its end is known; work requests still use its memory
)

// msgPriv is the Conn's part of a Msg.
type msgPriv struct {
	next, prev *Msg
	list       *msgList
	chain      *Msg      // next operation of the same SEND
	stop       *portStop // the stopped port it is in flight to
	seq        uint64    // 0 until first posted
	about      uint64    // of a notice: the sequence it tells of
	end        uint64    // over TCP: position in the stream behind its last byte
	state      msgState
	outcome    Outcome    // of msgEnding
	flags      wire.Flags // RETRANSMITTED, RESUME
	refs       int        // work requests that may touch Data or the operation's buffers
	sent       int        // payload bytes posted of a message in fragments
	own        bool       // made by the Conn itself: notices, pongs
	posted     bool       // posted at least once, on any connection
	opPosted   bool       // CanPost said yes
	opLocal    bool       // OpLocal was called
	opProven   bool       // it was received once (and refused): its RDMA is done
}

// opNew says that m has an operation that was not posted yet.
func (m *Msg) opNew() bool { return m.Op != nil && !m.priv.opPosted }

// opOpen says that m's fate is that of its posted operation: it must not be
// sent again, because its RDMA may not have happened or must not happen twice.
func (m *Msg) opOpen() bool { return m.priv.opPosted && !m.priv.opProven }

// msgList is an intrusive list of messages.
type msgList struct {
	head, tail *Msg
	n, bytes   int
	ops        uint64 // bytes of their operations
}

func (l *msgList) push(m *Msg) {
	p := &m.priv
	p.list, p.prev, p.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.priv.next = m
	} else {
		l.head = m
	}
	l.tail = m
	l.n++
	l.bytes += len(m.Data)
	if m.Op != nil {
		l.ops += m.opBytes()
	}
}

// opBytes is how many bytes the operations of m move.
func (m *Msg) opBytes() uint64 {
	n := m.Op.Len
	if m.Op2 != nil {
		n += m.Op2.Len
	}
	return n
}

func (l *msgList) remove(m *Msg) {
	p := &m.priv
	if p.prev != nil {
		p.prev.priv.next = p.next
	} else {
		l.head = p.next
	}
	if p.next != nil {
		p.next.priv.prev = p.prev
	} else {
		l.tail = p.prev
	}
	p.list, p.prev, p.next = nil, nil, nil
	l.n--
	l.bytes -= len(m.Data)
	if m.Op != nil {
		l.ops -= m.opBytes()
	}
}

// prepend moves all of f to the front of l.
func (l *msgList) prepend(f *msgList) {
	if f.head == nil {
		return
	}
	for m := f.head; m != nil; m = m.priv.next {
		m.priv.list = l
	}
	if l.head != nil {
		f.tail.priv.next, l.head.priv.prev = l.head, f.tail
	} else {
		l.tail = f.tail
	}
	l.head = f.head
	l.n += f.n
	l.bytes += f.bytes
	l.ops += f.ops
	*f = msgList{}
}

// end decides m's outcome. m is on no list. While work requests use its
// memory, or it is half sent, the host hears later.
func (c *Conn) end(m *Msg, o Outcome) {
	p := &m.priv
	if p.stop != nil {
		p.stop.inflight--
		p.stop = nil
		c.releaseDue = true
	}
	if (p.refs > 0 || m == c.frag) && !mutant.On(mutant.CancelEarly) {
		p.state, p.outcome = msgEnding, o
		return
	}
	c.finish(m, o)
}

// finish gives m back to its owner, who may use it again at once.
func (c *Conn) finish(m *Msg, o Outcome) {
	p := &m.priv
	if p.opPosted && !p.opLocal {
		p.opLocal = true
		c.host.OpLocal(c, m)
	}
	p.state = msgIdle
	if p.own {
		own := m.Owner.(*ownMsg)
		if own == c.quiet.probe {
			c.quiet.probe = nil
		}
		c.own.give(own)
		return
	}
	c.stats.ended(o)
	c.host.MsgDone(c, m, o)
}

// unref notes that a work request on m's memory completed.
func (c *Conn) unref(m *Msg) {
	p := &m.priv
	if p.refs--; p.refs == 0 && p.state == msgEnding && m != c.frag {
		c.finish(m, p.outcome)
	}
}

// endAll ends every message of l.
func (c *Conn) endAll(l *msgList, o Outcome) {
	for l.head != nil {
		m := l.head
		l.remove(m)
		c.end(m, o)
	}
}
