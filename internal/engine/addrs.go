package engine

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/ports"
	"github.com/rdsd/rdsd/verbs"
)

// addresses are the addresses of this host.
type addresses struct {
	e *Engine

	by  map[netip.Addr]*localAddr
	all []*localAddr // in order of AddLocal
}

// localAddr is one address of this host.
type localAddr struct {
	loop      *loop
	addr      netip.Addr
	addr16    [16]byte          // addr as messages to clients carry it
	key       verbs.PeerKey     // stands for this address in exports to this host
	listeners [2]verbs.Listener // by rail; nil: the address is not on it
	ports     ports.Table[socket]
	cong      cong.Map
	congNews  bool                 // the map changed, peers are to be told
	slots     map[uint16]*audience // of this host's sockets, by the port here they lead to
}

// AddLocal makes addr one of the host's addresses and listens there, on all
// devices. Before the first turn only: it may block.
func (e *Engine) AddLocal(addr netip.Addr) error { return e.AddLocalOn(addr, true, true) }

// AddLocalOn is AddLocal on the first device, the second, or both.
func (e *Engine) AddLocalOn(addr netip.Addr, first, second bool) error {
	addr = addr.Unmap()
	l := &localAddr{loop: &e.loop, addr: addr, addr16: addr.As16(), slots: map[uint16]*audience{}}
	for i, r := range e.devices.rails {
		if on := [...]bool{first, second}; !on[i] {
			continue
		}
		if err := failpoint.Hit(failpoint.Listen); err != nil {
			l.close()
			return err
		}
		ln, err := r.dev.Listen(e.addrs.port(addr))
		if err != nil {
			l.close()
			return err
		}
		l.listeners[i] = ln
	}
	if e.tcp != nil {
		if err := e.tcp.net.Listen(addr); err != nil {
			l.close()
			return fmt.Errorf("RDS/TCP: %w", err)
		}
	}
	l.key = e.keys.newKeys()
	e.addrs.by[addr] = l
	e.addrs.all = append(e.addrs.all, l)
	return nil
}

// serveAddrs answers ipc.Addrs.
func (as *addresses) serveAddrs() *ipc.AddrsOK {
	r := &ipc.AddrsOK{}
	for _, l := range as.all {
		r.Addrs = append(r.Addrs, l.addr)
	}
	return r
}

func (l *localAddr) close() {
	for _, ln := range l.listeners {
		if ln != nil {
			ln.Close()
		}
	}
}

// port is where the daemon of a host is at an address.
func (as *addresses) port(a netip.Addr) netip.AddrPort {
	e := as.e
	if a.Is4() {
		return netip.AddrPortFrom(a, e.cfg.Port)
	}
	return netip.AddrPortFrom(a, e.cfg.Port6)
}
