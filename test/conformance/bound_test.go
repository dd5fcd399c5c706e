package conformance

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/wire"
)

// way is from a socket of the peer to a socket of the daemon.
type way struct{ from, to uint16 }

// destination does for a received frame what rdsd does for destinations. The peer answers a
// message that asks for its socket with BOUND, even if it does not ack. The kernel's calls do not ask. Its own messages
// name the incarnation in the daemon's BOUND.
func (p *peer) destination(f inFrame) {
	p.t.Helper()
	switch {
	case isInternal(wire.TypeBound)(f):
		b, err := wire.ParseBound(f.body)
		if err != nil || b.DstInc == 0 {
			p.t.Errorf("BOUND %+v, %v", b, err)
		}
		p.met[way{b.SPort, b.DPort}] = b.DstInc
	case isData(f) && f.DPort != 0:
		if p.part += len(f.body); p.part < int(f.Len) {
			return // a fragment, and not the last one
		}
		p.part = 0
		if f.DstInc == 0 && f.Flags&wire.FlagSilent == 0 && !f.Anybody() {
			n := wire.Notice{Seq: f.Seq, DPort: f.DPort, SPort: f.SPort, SrcInc: f.SrcInc}
			p.internal(wire.TypeBound, (&wire.Bound{Notice: n, DstInc: p.inc}).Append(nil))
		}
	}
}

// meet sends the first message to a socket, and waits for the BOUND that answers it. Later
// messages get acks only.
func (p *peer) meet(to netip.AddrPort) {
	p.t.Helper()
	p.send(to, []byte("first"))
	p.until("BOUND", func() bool { return p.met[way{7, to.Port()}] != 0 })
}

// settled waits for the daemon's BOUND about a message to a socket and acks it. Then it waits
// until the daemon has nothing unacked. Otherwise the daemon would connect by itself after a
// break, and cross the peer's attempt.
func (p *peer) settled(to netip.AddrPort) {
	p.t.Helper()
	p.until("BOUND", func() bool { return p.met[way{7, to.Port()}] != 0 })
	p.ack(p.last)
	p.until("all is acked", func() bool {
		c, _ := p.h.peer(p.t, p.addr, p.lane)
		return c.UnackedMessages == 0
	})
}
