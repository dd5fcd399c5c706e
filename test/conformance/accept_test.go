package conformance

import (
	"net/netip"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// listen makes the peer listen, so that the daemon can connect to it.
func (p *peer) listen() {
	p.t.Helper()
	_, err := p.dev.Listen(netip.AddrPortFrom(p.addr, rdsPort))
	ok(p.t, "listen", err)
}

// request waits for the daemon's next attempt to connect.
func (p *peer) request() verbs.CMEvent {
	p.t.Helper()
	p.until("a request", func() bool { return len(p.requests) > 0 })
	r := p.requests[0]
	p.requests = p.requests[1:]
	return r
}

// accept accepts an attempt and does the handshake.
func (p *peer) accept(r verbs.CMEvent) {
	p.t.Helper()
	p.newQP()
	var err error
	p.private, err = wire.ParsePrivate(r.Private, false)
	ok(p.t, "private data", err)
	ok(p.t, "accept", p.dev.Accept(r.Req, p.qp, p.privateData()))
	p.until("established", func() bool { return p.up })
	p.shake()
}

// drop breaks the connection.
func (p *peer) drop() {
	p.qp.ToError()
	p.dev.Progress()
	_ = p.qp.Destroy()
	p.up = false
}
