package rdmadev

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/Mellanox/rdmamap"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func (s *Sources) defaults() {
	if s.Sys == "" {
		s.Sys = "/sys"
	}
	if s.Dev == "" {
		s.Dev = "/dev"
	}
	if s.Links == nil {
		s.Links = links
	}
	if s.Map == nil {
		s.Map = mapped
	}
	if s.Nodes == nil {
		s.Nodes = charDevices
	}
	if s.Counters == nil {
		s.Counters = counters
	}
	if s.Interfaces == nil {
		s.Interfaces = interfaces
	}
	if s.Usable == nil {
		s.Usable = func(path string) error {
			if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		}
	}
}

// mapped asks rdmamap. rdmamap reports "none" as an error.
func mapped(netdev string) string {
	name, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return ""
	}
	return name
}

func interfaces() (map[netip.Addr]string, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	m := map[netip.Addr]string{}
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				m[p.Addr().Unmap().WithZone("")] = i.Name
			}
		}
	}
	return m, nil
}

// RDMA_NLDEV_CMD_PORT_GET and RDMA_NLDEV_ATTR_PORT_INDEX, rdma/rdma_netlink.h.
const (
	cmdPortGet    = 5
	attrDevIndex  = 1
	attrPortIndex = 3
	attrNdevName  = 51
	familyNldev   = 5
)

// links asks the kernel for the devices of this network namespace, and for the interface of
// each port.
func links() (map[string]map[int]string, error) {
	devs, err := netlink.RdmaLinkList()
	if err != nil {
		return nil, err
	}
	m := map[string]map[int]string{}
	for _, d := range devs {
		ports := map[int]string{}
		m[d.Attrs.Name] = ports
		req := nl.NewNetlinkRequest(familyNldev<<nl.RDMA_NL_GET_CLIENT_SHIFT|cmdPortGet, unix.NLM_F_ACK|unix.NLM_F_DUMP)
		req.AddRawData(nl.NewRtAttr(attrDevIndex, binary.NativeEndian.AppendUint32(nil, d.Attrs.Index)).Serialize())
		msgs, err := req.Execute(unix.NETLINK_RDMA, 0)
		if err != nil {
			return nil, fmt.Errorf("ports of %s: %w", d.Attrs.Name, err)
		}
		for _, b := range msgs {
			if n, name := parsePort(b); name != "" {
				ports[n] = name
			}
		}
	}
	return m, nil
}

// parsePort reads an answer's port number and interface. name is "" if the answer has none.
func parsePort(b []byte) (n int, name string) {
	for len(b) >= unix.SizeofRtAttr {
		size, typ := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			return 0, ""
		}
		switch v := b[unix.SizeofRtAttr:size]; {
		case typ == attrPortIndex && len(v) == 4:
			n = int(binary.NativeEndian.Uint32(v))
		case typ == attrNdevName:
			for i, c := range v {
				if c == 0 {
					v = v[:i]
					break
				}
			}
			name = string(v)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return n, name
}
