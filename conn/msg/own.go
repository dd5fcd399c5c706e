package msg

import "github.com/rdsd/rdsd/conn/wire"

// A peer can make this side owe it notices and pongs and never take any. Above
// MaxPongs pings go unanswered, above MaxOwing the connection is broken off. The connections to
// one address have one MaxOwing, see OwnMsgs.Over.
const (
	MaxPongs = 1 << 10
	MaxOwing = 1 << 16
)

// OwnMsg is a message that a connection makes itself: a notice, a pong or a
// probe.
type OwnMsg struct {
	Msg
	Body [wire.ResultLen]byte
	next *OwnMsg // in OwnMsgs.free
}

// OwnMsgs is the pool of a connection's own messages.
type OwnMsgs struct {
	free *OwnMsg
	N    int  // taken and not given back
	All  *int // likewise, of all connections to the address; nil: there is no other
}

// Sum is how many all connections to the address have.
func (p *OwnMsgs) Sum() int {
	if p.All != nil {
		return *p.All
	}
	return p.N
}

// Over reports whether there are too many, and this connection has a part in it.
func (p *OwnMsgs) Over() bool { return p.Sum() > MaxOwing && p.N > MaxPongs }

func (p *OwnMsgs) add(n int) {
	p.N += n
	if p.All != nil {
		*p.All += n
	}
}

// Take returns an empty message.
func (p *OwnMsgs) Take() *OwnMsg {
	p.add(1)
	o := p.free
	if o == nil {
		o = new(OwnMsg)
	} else {
		p.free = o.next
	}
	o.Msg = Msg{Owner: o}
	o.Msg.Track.Own, o.Owed = true, true
	return o
}

// Give takes o back.
func (p *OwnMsgs) Give(o *OwnMsg) {
	p.add(-1)
	o.next, p.free = p.free, o
}
