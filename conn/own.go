package conn

import "github.com/rdsd/rdsd/conn/wire"

// ownMsg is a message that a Conn or TCP makes itself: a notice, a pong or a
// probe.
type ownMsg struct {
	Msg
	body [wire.ResultLen]byte
	next *ownMsg // in ownMsgs.free
}

// ownMsgs is the pool of a connection's own messages.
type ownMsgs struct {
	free *ownMsg
	n    int // taken and not given back
}

// take returns an empty message.
func (p *ownMsgs) take() *ownMsg {
	p.n++
	o := p.free
	if o == nil {
		o = new(ownMsg)
	} else {
		p.free = o.next
	}
	o.Msg = Msg{Owner: o}
	o.Msg.priv.own = true
	return o
}

// give takes o back.
func (p *ownMsgs) give(o *ownMsg) {
	p.n--
	o.next, p.free = p.free, o
}
