package engine

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// Ping is a ping in progress. Only the engine's goroutine uses it.
type Ping struct {
	e    *Engine
	sock *socket
	addr netip.Addr
}

// Ping sends a ping from a port of the daemon's own. pong, with room for one, is sent
// to when it is answered; failed is called, once at most, when an attempt to connect
// has failed.
func (e *Engine) Ping(addr netip.Addr, pong chan<- struct{}, failed func(error)) (*Ping, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return nil, fmt.Errorf("%w: %v is not a host's address", ctl.ErrNotFound, addr)
	}
	var l *localAddr
	for _, x := range e.addrs.all {
		if l = x; x.addr.Is4() == addr.Is4() {
			break
		}
	}
	if l == nil || l.addr.Is4() != addr.Is4() {
		return nil, fmt.Errorf("%w: the daemon has no address of the family of %v", ctl.ErrNotFound, addr)
	}
	var p *peer
	if e.addrs.by[addr] == nil && !e.cfg.Allowed(addr) {
		return nil, fmt.Errorf("ping %v: %w of this host (add it, and run rdsctl config reload)", addr, ErrNotAllowed)
	}
	if e.addrs.by[addr] == nil {
		var err error
		if p, err = e.peer(l, addr, 0, nil); err != nil {
			return nil, err
		}
	}
	port := l.freePort(e.cfg.Rand, anyPort)
	if port == 0 {
		return nil, fmt.Errorf("no free port on %v", l.addr)
	}
	s := &socket{local: l, port: port, inc: 1, ping: pongTo(pong)}
	l.ports.set(port, s)
	if p == nil {
		s.ping(e.now)
		return &Ping{e, s, addr}, nil
	}
	if !p.c.Ready() {
		p.reach.pings = append(p.reach.pings, failed)
	}
	m := e.ctl(p, 0, 0)
	m.m.SPort, m.m.SrcInc = port, s.inc
	e.st.C[stats.SendPong]++
	e.sendCtl(p, m, nil)
	return &Ping{e, s, addr}, nil
}

// Peer describes the connection that the ping goes by. It returns false if there is none:
// the address is this host's, or the peer has been forgotten.
func (x *Ping) Peer() (i ctl.PeerInfo, ok bool) {
	p := x.peer()
	if p == nil {
		return i, false
	}
	return x.e.peerInfo(p).PeerInfo, true
}

func (x *Ping) peer() *peer { return x.e.peers.hosts[remoteKey{x.sock.local.addr, x.addr}].lane(0) }

// End withdraws a ping that was not answered and frees its port.
func (x *Ping) End() {
	e, s := x.e, x.sock
	s.local.ports.set(s.port, nil)
	if p := x.peer(); p != nil {
		p.c.CancelMatching(func(m *connMsg) bool { _, ok := m.Owner.(*ctlMsg); return ok && m.Internal == 0 && m.SPort == s.port }, cancelled)
		e.dropIfNew(p)
	}
}

// pongTo notes an answer without ever blocking the engine: whoever knows the
// port may send any number.
func pongTo(pong chan<- struct{}) func(now int64) {
	return func(int64) {
		select {
		case pong <- struct{}{}:
		default:
		}
	}
}
