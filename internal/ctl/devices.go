package ctl

import "net/netip"

// Devices are the RDMA devices of the host and the transports of the daemon's addresses, as
// they were when the daemon started. Counters are of this moment.
type Devices struct {
	Built     bool         `json:"built"` // the daemon was built with libibverbs
	Devices   []Device     `json:"devices"`
	Addresses []AddressWay `json:"addresses"`
	Problems  []string     `json:"problems"` // contradictions between sysfs, netlink and rdmamap
}

// Device is one RDMA device.
type Device struct {
	Name  string       `json:"name"`
	Kind  string       `json:"kind"` // "InfiniBand" (also for RoCE), "iWARP"
	GUID  string       `json:"node_guid"`
	Node  string       `json:"node"` // device node, "" = none
	Used  bool         `json:"used"`
	Ports []DevicePort `json:"ports"`
	Nodes []DeviceNode `json:"char_devices"`
	// Counters are those that the device has beside those of its ports.
	Counters CounterList `json:"counters"`
}

// DeviceNode is a character device that connections over the device need.
type DeviceNode struct {
	Path    string `json:"path"`
	Problem string `json:"problem"` // why the daemon cannot use it, "" = it can
}

// DevicePort is one port of a device.
type DevicePort struct {
	Number     int         `json:"number"`
	State      string      `json:"state"`      // "ACTIVE", "DOWN", ...
	LinkLayer  string      `json:"link_layer"` // "Ethernet", "InfiniBand"
	Interfaces []string    `json:"interfaces"`
	GIDs       []DeviceGID `json:"gids"`
	// Counters are those of this moment, as the device names and counts them. For example
	// port_rcv_data counts four bytes at a time.
	Counters CounterList `json:"counters"`
}

// DeviceGID is an entry of a port's GID table.
type DeviceGID struct {
	Index     int        `json:"index"`
	Addr      netip.Addr `json:"addr"`
	Type      string     `json:"type"` // "RoCE v2", ...
	Interface string     `json:"interface"`
}

// AddressWay is which transports the connections of one of the daemon's addresses may use.
type AddressWay struct {
	Addr        netip.Addr `json:"addr"`
	Transports  []string   `json:"transports"` // "verbs", "soft", "tcp"; the preferred one first
	Device      string     `json:"device"`     // with verbs
	WhyNotVerbs string     `json:"why_not_verbs"`
}

func (d *Devices) normalize() {
	d.Devices, d.Addresses, d.Problems = nonNil(d.Devices), nonNil(d.Addresses), nonNil(d.Problems)
	for i := range d.Devices {
		x := &d.Devices[i]
		x.Ports, x.Nodes, x.Counters = nonNil(x.Ports), nonNil(x.Nodes), nonNil(x.Counters)
		for j := range x.Ports {
			p := &x.Ports[j]
			p.Interfaces, p.GIDs, p.Counters = nonNil(p.Interfaces), nonNil(p.GIDs), nonNil(p.Counters)
		}
	}
	for i := range d.Addresses {
		d.Addresses[i].Transports = nonNil(d.Addresses[i].Transports)
	}
}
