package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
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

// Of the second device, beside an adapter.
const (
	secondRecvBufs = 16384
	secondCQE      = 1 << 16
)

// Where Linux's RDS is in the port space of RDMA connections (net/rds/rds.h).
const (
	kernelPort4 = 18634
	kernelPort6 = 16385
)

// transport is what the daemon decided on: which devices it opened, and which
// of them each of its addresses is on.
type transport struct {
	host    *rdmadev.Host
	adapter verbs.Device // nil: none
	name    string       // the adapter's
	soft    *soft.Device // nil: none
	places  []place
}

// place is one address of the daemon.
type place struct {
	addr        netip.Addr
	verbs, soft bool
	why         error // why not verbs
}

var errNotWanted = errors.New("the key transport names another")

// choose decides for every address. built, locate and open are ibv's and the
// host's: a test has its own.
func choose(cfg *config.Config, host *rdmadev.Host, built bool, open func(netip.Addr) (verbs.Device, error)) (*transport, error) {
	t := &transport{host: host}
	iwarp := false
	for _, a := range cfg.Listen {
		p := place{addr: a, soft: cfg.MayUse(a, config.TransportSoft)}
		switch {
		case !cfg.MayUse(a, config.TransportVerbs):
			p.why = errNotWanted
		case cfg.InsistsOnVerbs(a):
			p.verbs = true
		default:
			dev, err := host.Locate(a)
			switch {
			case err != nil:
				p.why = err
			case !built:
				p.why = fmt.Errorf("%s has it, and this build has no libibverbs: make build-ibv", dev.Name)
			case cfg.WantsTLS(a):
				p.why = fmt.Errorf("%s has it, but there is no TLS on an adapter, and tls.mode is %s", dev.Name, cfg.TLS.Mode)
			case t.name != "" && t.name != dev.Name:
				p.why = fmt.Errorf("%s has it, and the daemon uses %s: it uses one adapter", dev.Name, t.name)
			default:
				p.verbs, t.name = true, dev.Name
			}
		}
		t.places = append(t.places, p)
	}
	// An address that must be on an adapter says first which one.
	at := slices.IndexFunc(t.places, func(p place) bool { return p.verbs && cfg.InsistsOnVerbs(p.addr) })
	insists := at >= 0
	if at < 0 {
		at = slices.IndexFunc(t.places, func(p place) bool { return p.verbs })
	}
	if at < 0 {
		return t, nil
	}
	var err error
	if t.adapter, err = open(t.places[at].addr); err != nil {
		if insists {
			return nil, fmt.Errorf("transport verbs: %w", err)
		}
		for i := range t.places {
			if p := &t.places[i]; p.verbs {
				p.verbs, p.why = false, err
			}
		}
		t.name = ""
		return t, nil
	}
	t.name = t.adapter.Attr().Name
	for _, d := range host.Devices {
		iwarp = iwarp || d.Name == t.name && d.IWARP
	}
	for i := range t.places {
		p := &t.places[i]
		if dev, err := host.Locate(p.addr); p.verbs && !cfg.InsistsOnVerbs(p.addr) && err == nil && dev.Name != t.name {
			p.verbs, p.why = false, fmt.Errorf("%s has it, and the daemon uses %s: it uses one adapter", dev.Name, t.name)
		}
		if p.verbs && iwarp {
			p.soft = false // both would want the same TCP port, and speak the same
		}
	}
	return t, nil
}

func openAdapter(a netip.Addr) (verbs.Device, error) {
	dev, err := ibv.Open(ibv.Options{Addr: a})
	if err != nil {
		return nil, err // not a nil *Device
	}
	return dev, nil
}

// second reports whether there are two devices.
func (t *transport) second() bool {
	return t.adapter != nil && slices.ContainsFunc(t.places, func(p place) bool { return p.soft })
}

// openDevice opens the devices and sets what follows from them in c. The first
// is the engine's to be made on; a second is added to it.
func (d *Daemon) openDevice(cfg *config.Config, opt soft.Options, c *engine.Config) (verbs.Device, error) {
	t, err := choose(cfg, rdmadev.Look(rdmadev.Sources{}), ibv.Built, openAdapter)
	if err != nil {
		return nil, err
	}
	d.via = t
	for _, p := range t.places {
		if p.why != nil && p.why != errNotWanted && len(t.host.Devices) > 0 {
			d.warnings = append(d.warnings, fmt.Sprintf("%v goes by soft: %v", p.addr, p.why))
			d.log.Warn("falls back to soft", "address", p.addr, "err", p.why)
		}
	}
	c.Way = func(local, peer netip.Addr) engine.Way {
		switch t, _ := d.config().TransportOf(local, peer); t {
		case config.TransportVerbs:
			return engine.FirstOnly
		case config.TransportSoft:
			return engine.SecondOnly
		}
		return engine.FirstElseSecond
	}
	if t.adapter != nil {
		if c.Port == kernelPort4 {
			c.Port6 = kernelPort6
		}
		c.ArmCQ = true
		c.RecvBufs, c.SendBufs, c.MaxPeers, c.CQE = verbsRecvBufs, verbsSendBufs, verbsMaxPeers, verbsCQE
	}
	if t.adapter == nil || t.second() {
		if t.soft, err = soft.New(opt); err != nil {
			return nil, fmt.Errorf("soft device: %w", err)
		}
		c.TurnedAway = func() uint64 {
			s := t.soft.Stats()
			return s.HandshakeGarbage + s.HandshakeTimeout + s.HandshakeRefused + s.HandshakeMarkers + s.HandshakePlain + s.HandshakeTLS + s.HandshakeLimited
		}
	}
	if t.adapter != nil {
		return t.adapter, nil
	}
	return t.soft, nil
}

// addLocals gives the engine its second device and its addresses.
func (d *Daemon) addLocals(cfg *config.Config) error {
	t := d.via
	if t.second() {
		if err := d.e.AddRail(t.soft, secondRecvBufs, secondCQE); err != nil {
			return fmt.Errorf("soft beside %s: %w", t.name, err)
		}
	}
	for _, p := range t.places {
		first, second := p.verbs, p.soft
		if t.adapter == nil {
			first, second = p.soft, false
		}
		if err := d.e.AddLocalOn(p.addr, first, second); err != nil {
			return fmt.Errorf("listen on %v: %w", netip.AddrPortFrom(p.addr, cfg.Port), err)
		}
	}
	return nil
}

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

// transports says what carries the connections to peers, and why.
func (d *Daemon) transports() []ctl.Choice {
	t := d.via
	v := ctl.Choice{Name: "verbs", Used: t.adapter != nil, Why: "RDMA device " + t.name}
	if !v.Used {
		v.Why = t.places[0].why.Error()
	}
	s := ctl.Choice{Name: "soft", Used: t.soft != nil, Why: "iWARP over TCP in user space: works on every host"}
	if !s.Used {
		s.Why = "every address is on " + t.name
	} else if t.adapter != nil {
		s.Why = "iWARP over TCP in user space, for what " + t.name + " does not reach"
	}
	c := ctl.Choice{Name: "tcp", Used: d.tcp != nil, Why: "RDS/TCP, with the hosts of tcp.peers and transport_rules"}
	if !c.Used {
		c.Why = "no setting names a host for RDS/TCP"
	}
	return []ctl.Choice{v, s, c}
}

// Devices lists the RDMA devices that were there when the daemon started, and
// what each of its addresses goes by.
func (b backend) Devices() (ctl.Devices, error) {
	t := b.d.via
	out := ctl.Devices{Built: ibv.Built, Problems: t.host.Problems}
	for i := range t.host.Devices {
		dev := &t.host.Devices[i]
		x := ctl.Device{Name: dev.Name, Kind: "InfiniBand", GUID: dev.GUID, Node: dev.Node, Used: dev.Name == t.name}
		if dev.IWARP {
			x.Kind = "iWARP"
		}
		for _, p := range dev.Ports {
			y := ctl.DevicePort{Number: p.Num, State: p.State, LinkLayer: p.LinkLayer, Interfaces: p.NetDevs}
			for _, g := range p.GIDs {
				y.GIDs = append(y.GIDs, ctl.DeviceGID{Index: g.Index, Addr: g.Addr, Type: g.Type, Interface: g.NetDev})
			}
			x.Ports = append(x.Ports, y)
		}
		out.Devices = append(out.Devices, x)
	}
	for _, p := range t.places {
		a := ctl.AddressWay{Addr: p.addr}
		if p.verbs {
			a.Transports, a.Device = append(a.Transports, "verbs"), t.name
		}
		if p.soft {
			a.Transports = append(a.Transports, "soft")
		}
		if b.d.tcp != nil && b.d.config().MayUse(p.addr, config.TransportTCP) {
			a.Transports = append(a.Transports, "tcp")
		}
		if p.why != nil {
			a.WhyNotVerbs = p.why.Error()
		}
		out.Addresses = append(out.Addresses, a)
	}
	return out, nil
}

// whyBy says why a connection goes by what it does, and not by an adapter.
func (d *Daemon) whyBy(p *engine.Peer) string {
	set, by := d.config().TransportOf(p.Local, p.Remote)
	switch {
	case p.TCPLanes > 0 || p.TCPConns != nil || set != config.TransportAuto:
		return by
	case d.via.adapter == nil || p.OnlySecond:
		for _, x := range d.via.places {
			if x.addr == p.Local && x.why != nil {
				return fmt.Sprintf("%s; not verbs: %v", by, x.why)
			}
		}
	case p.Second && p.Fell != nil && p.Dialed:
		return fmt.Sprintf("%s; not verbs: %v", by, p.Fell)
	case p.Second:
		return by + "; not verbs: the peer came by soft"
	}
	return by
}
