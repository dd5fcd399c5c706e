package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/stats"
)

// errReplaced is why a ping ends that is in progress when the engine is to stand still.
var errReplaced = errors.New("the daemon is being replaced by another one: try again")

// Ping is a ping in progress. Only the engine's thread may use it.
type Ping struct {
	e      *Engine
	sock   *socket
	addr   netip.Addr
	at     lanePath
	failed func(error) // nil: it was called
	in     lists.Link[Ping]
}

// pingData is what pings carry, for all of them. Nothing on the way can make it smaller.
var pingData = func() []byte {
	b := make([]byte, ctl.MaxPingSize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// Ping sends a ping of size bytes, at most ctl.MaxPingSize, by a path of lane 0, from a port of the daemon's own. The answer has none. pong, with room for one, is sent
// to when it is answered; failed is called, once at most, when an attempt to connect
// has failed, and with errReplaced when the ping ends because of Halt.
func (e *Engine) Ping(addr netip.Addr, path uint8, size int, pong chan<- struct{}, failed func(error)) (*Ping, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return nil, fmt.Errorf("%w: %v is not a host's address", ctl.ErrNotFound, addr)
	}
	if e.Halts() {
		return nil, errReplaced
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
	at := lanePath(0).in(path)
	var p *peer
	if e.addrs.by[addr] == nil {
		err := e.cfg.Allowed(addr)
		if err != nil {
			return nil, fmt.Errorf("ping %v: %w (add it on this host, and run rdsctl config reload)", addr, err)
		}
		if err = e.peers.hosts[remoteKey{l.addr, addr}].has(path); err != nil {
			return nil, fmt.Errorf("%w to %v", err, addr)
		}
		if p, err = e.peers.peer(l, addr, at, nil); err != nil {
			return nil, err
		}
	}
	port := l.freePort(e.cfg.Rand, anyPort)
	if port == 0 {
		return nil, fmt.Errorf("no free port on %v", l.addr)
	}
	s := &socket{local: l, port: port, inc: 1, ping: pongTo(pong)}
	l.ports.Set(port, s)
	x := &Ping{e: e, sock: s, addr: addr, at: at, failed: failed}
	e.pings.Add(&x.in, x)
	if p == nil {
		s.ping(e.now)
		return x, nil
	}
	if !p.c.Ready() {
		p.reach.pings = append(p.reach.pings, x)
	}
	m := e.peers.ctl(p, 0, 0)
	m.m.SPort, m.m.SrcInc = port, s.inc
	e.st.C[stats.SendPong]++
	e.peers.sendCtl(p, m, pingData[:size])
	return x, nil
}

// fail reports that x is not answered.
func (x *Ping) fail(err error) {
	if f := x.failed; f != nil {
		x.failed = nil
		f(err)
	}
}

// endPings ends all pings, because the daemon is being replaced.
func (ps *peerTable) endPings() {
	e := ps.e
	for e.pings.N > 0 {
		x := e.pings.Head.Of
		x.fail(errReplaced)
		x.End()
	}
}

// Peer describes the connection that the ping goes by. It returns false if there is none:
// the address is this host's, or the peer has been forgotten.
func (x *Ping) Peer() (i ctl.PeerInfo, ok bool) {
	p := x.peer()
	if p == nil {
		return i, false
	}
	return x.e.watch.peerInfo(p).PeerInfo, true
}

// Lost says how large packets fare on the connection that the ping goes by, "" if nothing is known to be wrong.
func (x *Ping) Lost() string {
	p := x.peer()
	if p == nil {
		return ""
	}
	switch w := p.c.Path(); {
	case w.Stuck && w.Passes:
		return "large packets do not pass, smaller ones do (see the MTU of the path, and that ICMP passes)"
	case w.Stuck:
		return "TCP sends the same again and again: large packets do not pass (see the MTU of the path, and that ICMP passes), or none do"
	}
	return ""
}

// Paths is how many paths lead to the peer in each lane, 1 on this host.
func (x *Ping) Paths() uint8 {
	p := x.peer()
	if p == nil {
		return 1
	}
	return p.paths
}

func (x *Ping) peer() *peer { return x.e.peers.hosts[remoteKey{x.sock.local.addr, x.addr}].lane(x.at) }

// End withdraws a ping that was not answered and frees its port. A second End does nothing.
func (x *Ping) End() {
	e, s := x.e, x.sock
	if !x.in.On() {
		return
	}
	e.pings.Del(&x.in)
	s.local.ports.Set(s.port, nil)
	if p := x.peer(); p != nil {
		p.c.CancelMatching(func(m *msg.Msg) bool { _, ok := m.Owner.(*ctlMsg); return ok && m.Internal == 0 && m.SPort == s.port }, msg.Cancelled)
		e.peers.dropIfNew(p)
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
