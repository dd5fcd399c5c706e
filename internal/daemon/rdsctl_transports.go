package daemon

import (
	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/verbs/ibv"
)

// transports says which transports are used, and why.
func (b backend) transports() []ctl.Choice {
	t := b.d.transport
	v := ctl.Choice{Name: "verbs", Used: t.adapter != nil, Why: "RDMA device " + t.name}
	if !v.Used {
		v.Why = t.locals[0].whyNotVerbs.Error()
	}
	s := ctl.Choice{Name: "soft", Used: t.soft != nil, Why: "iWARP over TCP in user space: works on every host"}
	if !s.Used {
		s.Why = "every address is on " + t.name
	} else if t.adapter != nil {
		s.Why = "iWARP over TCP in user space, for what " + t.name + " does not reach"
	}
	c := ctl.Choice{Name: "tcp", Used: b.d.tcp != nil, Why: "RDS/TCP, with the hosts of tcp.peers and transport_rules"}
	if !c.Used {
		c.Why = "no setting names a host for RDS/TCP"
	}
	return []ctl.Choice{v, s, c}
}

// Devices lists the RDMA devices that were there when the daemon started, and which
// transports carry each of the daemon's addresses.
func (b backend) Devices() (ctl.Devices, error) {
	t := b.d.transport
	out := ctl.Devices{Built: ibv.Built, Problems: t.host.Problems}
	for i := range t.host.Devices {
		dev := &t.host.Devices[i]
		x := ctl.Device{Name: dev.Name, Kind: "InfiniBand", GUID: dev.GUID, Node: dev.Node, Used: dev.Name == t.name}
		if dev.IWARP {
			x.Kind = "iWARP"
		}
		for _, n := range dev.Nodes {
			node := ctl.DeviceNode{Path: n.Path}
			if n.Err != nil {
				node.Problem = n.Err.Error()
			}
			x.Nodes = append(x.Nodes, node)
		}
		for _, c := range t.host.DeviceCounters(dev) {
			x.Counters = append(x.Counters, ctl.Counter{Name: c.Name, Value: c.Value})
		}
		for _, p := range dev.Ports {
			y := ctl.DevicePort{Number: p.Num, State: p.State, LinkLayer: p.LinkLayer, Interfaces: p.NetDevs}
			for _, g := range p.GIDs {
				y.GIDs = append(y.GIDs, ctl.DeviceGID{Index: g.Index, Addr: g.Addr, Type: g.Type, Interface: g.NetDev})
			}
			for _, c := range t.host.Counters(dev, p.Num) {
				y.Counters = append(y.Counters, ctl.Counter{Name: c.Name, Value: c.Value})
			}
			x.Ports = append(x.Ports, y)
		}
		out.Devices = append(out.Devices, x)
	}
	for _, l := range t.locals {
		a := ctl.AddressWay{Addr: l.addr}
		if l.verbs {
			a.Transports, a.Device = append(a.Transports, "verbs"), t.name
		}
		if l.soft {
			a.Transports = append(a.Transports, "soft")
		}
		if b.d.tcp != nil && b.d.config().MayUse(l.addr, config.TransportTCP) {
			a.Transports = append(a.Transports, "tcp")
		}
		if l.whyNotVerbs != nil {
			a.WhyNotVerbs = l.whyNotVerbs.Error()
		}
		out.Addresses = append(out.Addresses, a)
	}
	return out, nil
}
