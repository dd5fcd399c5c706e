package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/rdmadev"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/ibv"
	"github.com/rdsd/rdsd/verbs/soft"
)

// Sizes over an adapter: what is registered there is pinned memory, and its
// completion queues have limits.
const (
	verbsRecvBufs = 2048
	verbsSendBufs = 1024
	verbsMaxPeers = 512
	verbsCQE      = 16384
)

// Sizes of the soft device where it is the second device, beside an adapter.
const (
	secondRecvBufs = 16384
	secondCQE      = 1 << 16
)

// The ports of Linux's RDS in the port space of RDMA connections (net/rds/rds.h).
const (
	kernelPort4 = 18634
	kernelPort6 = 16385
)

// openTransport chooses the devices for the addresses of cfg and opens them.
func openTransport(cfg *config.Config, opt soft.Options) (*transport, error) {
	t, err := choose(cfg, rdmadev.Look(rdmadev.Sources{}), ibv.Built, openAdapter)
	if err != nil {
		return nil, err
	}
	if t.adapter == nil || t.softBesideAdapter() {
		if t.soft, err = soft.New(opt); err != nil {
			t.close()
			return nil, fmt.Errorf("soft device: %w", err)
		}
	}
	return t, nil
}

// openAdapter opens the adapter that has address a.
func openAdapter(a netip.Addr) (verbs.Device, error) {
	dev, err := ibv.Open(ibv.Options{Addr: a})
	if err != nil {
		return nil, err // not a nil *Device
	}
	return dev, nil
}

// softBesideAdapter reports whether the engine has two devices: an adapter, and the soft
// device for what the adapter does not reach.
func (t *transport) softBesideAdapter() bool {
	return t.adapter != nil && slices.ContainsFunc(t.locals, func(l localAddr) bool { return l.soft })
}

// first is the device that the engine is made on.
func (t *transport) first() verbs.Device {
	if t.adapter != nil {
		return t.adapter
	}
	return t.soft
}

// fallbacks returns the addresses that are on soft although the host has adapters and the
// settings allow them.
func (t *transport) fallbacks() (out []localAddr) {
	for _, l := range t.locals {
		if l.whyNotVerbs != nil && l.whyNotVerbs != errNotWanted && len(t.host.Devices) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// configure sets in c what follows from the devices. The engine's thread does not run yet.
func (t *transport) configure(c *engine.Config) {
	if t.adapter != nil {
		if c.Port == kernelPort4 {
			c.Port6 = kernelPort6
		}
		c.ArmCQ = true
		c.RecvBufs, c.SendBufs, c.MaxPeers, c.CQE = verbsRecvBufs, verbsSendBufs, verbsMaxPeers, verbsCQE
	}
	if t.soft != nil {
		c.TurnedAway = func() uint64 {
			s := t.soft.Stats()
			return s.HandshakeGarbage + s.HandshakeTimeout + s.HandshakeRefused + s.HandshakeMarkers + s.HandshakePlain + s.HandshakeTLS + s.HandshakeLimited
		}
	}
}

// addTo gives e its second device, if there is one, and the daemon's addresses. The engine's thread
// does not run yet.
func (t *transport) addTo(e *engine.Engine, port uint16) error {
	if t.softBesideAdapter() {
		if err := e.AddRail(t.soft, secondRecvBufs, secondCQE); err != nil {
			return fmt.Errorf("soft beside %s: %w", t.name, err)
		}
	}
	for _, l := range t.locals {
		first, second := l.verbs, l.soft
		if t.adapter == nil {
			first, second = l.soft, false
		}
		if err := e.AddLocalOn(l.addr, first, second); err != nil {
			return fmt.Errorf("listen on %v: %w", netip.AddrPortFrom(l.addr, port), err)
		}
	}
	return nil
}

// close closes the devices. A nil transport has none. The engine's thread has ended or never
// ran.
func (t *transport) close() {
	if t == nil {
		return
	}
	if t.adapter != nil {
		t.adapter.Close()
	}
	if t.soft != nil {
		t.soft.Close()
	}
}

// why says why the connection with p is carried by its transport and not by an adapter.
func (t *transport) why(cfg *config.Config, p *engine.Peer) string {
	set, by := cfg.TransportOf(p.Local, p.Remote)
	switch {
	case p.TCPLanes > 0 || p.TCPConns != nil || set != config.TransportAuto:
		return by
	case t.adapter == nil || p.OnlySecond:
		for _, l := range t.locals {
			if l.addr == p.Local && l.whyNotVerbs != nil {
				return fmt.Sprintf("%s; not verbs: %v", by, l.whyNotVerbs)
			}
		}
	case p.Second && p.Fell != nil && p.Dialed:
		return fmt.Sprintf("%s; not verbs: %v", by, p.Fell)
	case p.Second:
		return by + "; not verbs: the peer came by soft"
	}
	return by
}
