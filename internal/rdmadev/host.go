// Package rdmadev says which RDMA devices this host has, and which device an address is on.
// It reads sysfs and checks that against rdmamap and the kernel's RDMA netlink. Counters and
// character devices come from rdmamap. It opens no device and needs no libibverbs.
package rdmadev

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// Host is what Look found.
type Host struct {
	Devices []Device // by name
	// Problems are contradictions between the sources, and what could not be read.
	Problems []string

	interfaces map[netip.Addr]string
	cm         error // why there is no connection manager, or nil
	sys        string
	counters   func(device string, port int) []Counter
}

// Device is one RDMA device.
type Device struct {
	Name  string // "mlx5_0"
	IWARP bool   // false for InfiniBand and RoCE
	GUID  string // of the node, as sysfs writes it
	Node  string // device node, "" = none
	Ports []Port // by number
	Nodes []Node // sorted by path

	node error // why the node cannot be used, or nil
}

// Port is one port of a device.
type Port struct {
	Num       int
	State     string   // "ACTIVE", "DOWN"
	LinkLayer string   // "InfiniBand", "Ethernet"
	NetDevs   []string // network interfaces that belong to it, sorted
	GIDs      []GID    // that are set
}

// GID is an entry of a port's GID table.
type GID struct {
	Index  int
	Addr   netip.Addr // of 16 bytes; a mapped IPv4 address is shown as IPv4
	Type   string     // "RoCE v2", "IB/RoCE v1", "" = not said
	NetDev string     // "" = none
}

// Sources are where Look reads. The zero value of a field is this host's source.
type Sources struct {
	Sys string // "/sys"
	Dev string // "/dev"
	// Links asks netlink: interfaces by device and port.
	Links func() (map[string]map[int]string, error)
	// Map is rdmamap: the device of an interface, "" for none.
	Map func(netdev string) string
	// Nodes is rdmamap: the character devices of a device.
	Nodes func(device string) []string
	// Counters is rdmamap: the counters of a port.
	Counters func(device string, port int) []Counter
	// Interfaces of this host's addresses.
	Interfaces func() (map[netip.Addr]string, error)
	// Usable is nil if a device node can be opened for reading and writing.
	Usable func(path string) error
}

// Look reads the sources. It never fails: what cannot be read is in Problems, and a host
// without RDMA devices has no Devices.
func Look(s Sources) *Host {
	s.defaults()
	h := &Host{interfaces: map[netip.Addr]string{}, sys: s.Sys, counters: s.Counters}
	h.readSys(&s)
	if m, err := s.Interfaces(); err != nil {
		h.problem("the interfaces of this host: %v", err)
	} else {
		h.interfaces = m
	}
	if len(h.Devices) > 0 {
		h.cm = s.Usable(filepath.Join(s.Dev, "infiniband/rdma_cm"))
	}
	h.crossCheck(&s)
	return h
}

func (h *Host) problem(format string, args ...any) {
	h.Problems = append(h.Problems, fmt.Sprintf(format, args...))
}

// crossCheck compares sysfs with netlink and rdmamap. For iWARP devices netlink may name an
// interface that sysfs does not name.
func (h *Host) crossCheck(s *Sources) {
	links, err := s.Links()
	switch {
	case err != nil && len(h.Devices) > 0:
		h.problem("RDMA netlink: %v", err)
		return
	case err != nil:
		return
	}
	for i := range h.Devices {
		d := &h.Devices[i]
		ports, ok := links[d.Name]
		if !ok {
			h.problem("%s is in sysfs and not in RDMA netlink: it may belong to another network namespace", d.Name)
			continue
		}
		for j := range d.Ports {
			p := &d.Ports[j]
			if name := ports[p.Num]; name != "" && !slices.Contains(p.NetDevs, name) {
				if len(p.NetDevs) > 0 {
					h.problem("port %d of %s: netlink says its interface is %s, sysfs %s", p.Num, d.Name, name, strings.Join(p.NetDevs, ", "))
				}
				p.NetDevs = append(p.NetDevs, name)
				slices.Sort(p.NetDevs)
			}
		}
	}
	for name := range links {
		if h.device(name) == nil {
			h.problem("%s is in RDMA netlink and not in sysfs", name)
		}
	}
	slices.Sort(h.Problems) // the order of a map is random
	if slices.ContainsFunc(h.Devices, func(d Device) bool { return d.GUID == "" }) {
		return // rdmamap does not expect that
	}
	for _, name := range h.netDevs() {
		is := s.Map(name)
		if d, _ := h.on(name); d != nil && is != "" && is != d.Name && !h.has(is, name) {
			h.problem("rdmamap says that %s is of %s, sysfs that it is of %s", name, is, d.Name)
		}
	}
}

// netDevs are the interfaces of all devices, sorted, once each.
func (h *Host) netDevs() (all []string) {
	for i := range h.Devices {
		for j := range h.Devices[i].Ports {
			all = append(all, h.Devices[i].Ports[j].NetDevs...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (h *Host) has(device, netdev string) bool {
	d := h.device(device)
	return d != nil && slices.ContainsFunc(d.Ports, func(p Port) bool { return slices.Contains(p.NetDevs, netdev) })
}

func (h *Host) device(name string) *Device {
	for i := range h.Devices {
		if h.Devices[i].Name == name {
			return &h.Devices[i]
		}
	}
	return nil
}

// on finds the first port with an interface, and prefers an active one.
func (h *Host) on(netdev string) (dev *Device, port *Port) {
	for i := range h.Devices {
		for j := range h.Devices[i].Ports {
			p := &h.Devices[i].Ports[j]
			if slices.Contains(p.NetDevs, netdev) && (port == nil || !port.active() && p.active()) {
				dev, port = &h.Devices[i], p
			}
		}
	}
	return dev, port
}

func (p *Port) active() bool { return p.State == "ACTIVE" }

// Locate returns the device that connections from and to a local address can use. An error
// says why there is none and what to do.
func (h *Host) Locate(a netip.Addr) (*Device, error) {
	a = a.Unmap().WithZone("")
	netdev, known := h.interfaces[a]
	dev, port := h.on(netdev)
	switch {
	case len(h.Devices) == 0:
		return nil, fmt.Errorf("this host has no RDMA device")
	case !known:
		return nil, fmt.Errorf("no interface of this host has %v", a)
	case dev == nil:
		return nil, fmt.Errorf("no RDMA device belongs to %s, which has %v (%s)", netdev, a, h.list())
	case !port.active():
		return nil, fmt.Errorf("port %d of %s is %s: is the link of %s up?", port.Num, dev.Name, strings.ToLower(port.State), netdev)
	case !dev.IWARP && port.LinkLayer == "Ethernet" && !slices.ContainsFunc(port.GIDs, func(g GID) bool { return g.Addr == a }):
		return nil, fmt.Errorf("%s has no GID for %v: does %s have the address for long enough?", dev.Name, a, netdev)
	case dev.Node == "":
		return nil, fmt.Errorf("%s has no device node: load the module ib_uverbs", dev.Name)
	case dev.node != nil:
		return nil, fmt.Errorf("the device node of %s: %w", dev.Name, dev.node)
	case h.cm != nil:
		return nil, fmt.Errorf("the RDMA connection manager: %w: load the module rdma_ucm", h.cm)
	}
	return dev, nil
}

// list names the devices and their interfaces.
func (h *Host) list() string {
	var l []string
	for i := range h.Devices {
		var names []string
		for _, p := range h.Devices[i].Ports {
			names = append(names, p.NetDevs...)
		}
		l = append(l, strings.TrimSpace(h.Devices[i].Name+" "+strings.Join(slices.Compact(names), " ")))
	}
	return strings.Join(l, ", ")
}
