package rdmadev

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const unset = "0000:0000:0000:0000:0000:0000:0000:0000"

// roce is a soft-RoCE device on eth0 with 10.9.0.1 and fd00:9::1.
func roce() map[string]string {
	p := "class/infiniband/rxe0/ports/1/"
	return map[string]string{
		"class/infiniband/rxe0/node_type": "1: CA\n", "class/infiniband/rxe0/node_guid": "5054:00ff:fe00:000a\n",
		p + "state": "4: ACTIVE\n", p + "link_layer": "Ethernet\n",
		p + "gids/0": "fe80:0000:0000:0000:5054:00ff:fe00:000a\n", p + "gid_attrs/types/0": "RoCE v2\n", p + "gid_attrs/ndevs/0": "eth0\n",
		p + "gids/1": "0000:0000:0000:0000:0000:ffff:0a09:0001\n", p + "gid_attrs/types/1": "RoCE v2\n", p + "gid_attrs/ndevs/1": "eth0\n",
		p + "gids/2": "fd00:0009:0000:0000:0000:0000:0000:0001\n", p + "gid_attrs/types/2": "RoCE v2\n", p + "gid_attrs/ndevs/2": "eth0\n",
		p + "gids/3": unset + "\n",
	}
}

// iwarp is a soft-iWARP device. Its GID table names no interface.
func iwarp() map[string]string {
	p := "class/infiniband/siw0/ports/1/"
	return map[string]string{
		"class/infiniband/siw0/node_type": "4: RNIC\n", "class/infiniband/siw0/node_guid": "5054:00ff:fe00:000b\n",
		p + "state": "4: ACTIVE\n", p + "link_layer": "Ethernet\n", p + "gids/0": "5254:0000:000b:0000:0000:0000:0000:0000\n",
	}
}

// sources are a tree of files and a kernel that agrees with the files.
func sources(t *testing.T, files ...map[string]string) Sources {
	t.Helper()
	dir := t.TempDir()
	for _, m := range files {
		for name, text := range m {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return Sources{Sys: dir, Dev: "/dev",
		Links: func() (map[string]map[int]string, error) {
			return map[string]map[int]string{"rxe0": {1: "eth0"}, "siw0": {1: "eth1"}}, nil
		},
		Nodes: func(device string) []string {
			return map[string][]string{"rxe0": {"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"}, "siw0": {"/dev/infiniband/uverbs1"}}[device]
		},
		Counters: func(string, int) []Counter { return nil },
		Map:      func(netdev string) string { return map[string]string{"eth0": "rxe0"}[netdev] },
		Interfaces: func() (map[netip.Addr]string, error) {
			return map[netip.Addr]string{netip.MustParseAddr("127.0.0.1"): "lo", netip.MustParseAddr("10.9.0.1"): "eth0", netip.MustParseAddr("10.9.0.9"): "eth0",
				netip.MustParseAddr("fd00:9::1"): "eth0", netip.MustParseAddr("10.9.1.1"): "eth1"}, nil
		},
		Usable: func(string) error { return nil },
	}
}

func TestLook(t *testing.T) {
	h := Look(sources(t, roce(), iwarp()))
	if len(h.Devices) != 2 || len(h.Problems) != 0 {
		t.Fatalf("%+v", h)
	}
	r, s := h.Devices[0], h.Devices[1]
	if r.Name != "rxe0" || r.IWARP || r.Node != "/dev/infiniband/uverbs0" || len(r.Ports) != 1 || len(r.Ports[0].GIDs) != 3 ||
		r.Ports[0].GIDs[1] != (GID{1, netip.MustParseAddr("10.9.0.1"), "RoCE v2", "eth0"}) {
		t.Errorf("%+v", r)
	}
	if s.Name != "siw0" || !s.IWARP || !slices.Equal(s.Ports[0].NetDevs, []string{"eth1"}) {
		t.Errorf("%+v", s)
	}
	for addr, want := range map[string]string{"10.9.0.1": "rxe0", "::ffff:10.9.0.1": "rxe0", "fd00:9::1": "rxe0", "10.9.1.1": "siw0"} {
		if d, err := h.Locate(netip.MustParseAddr(addr)); err != nil || d.Name != want {
			t.Errorf("%s: %v, %v", addr, d, err)
		}
	}
}

// Locate says why an address is on no device.
func TestLocate(t *testing.T) {
	tree := func(change func(m map[string]string)) map[string]string { m := roce(); change(m); return m }
	port := "class/infiniband/rxe0/ports/1/"
	for _, tc := range []struct {
		name, addr, want string
		files            map[string]string
		change           func(s *Sources)
	}{
		{"none", "10.9.0.1", "this host has no RDMA device", nil, nil},
		{"another interface", "10.9.1.1", "no RDMA device belongs to eth1, which has 10.9.1.1 (rxe0 eth0)", roce(), nil},
		{"loopback", "127.0.0.1", "no RDMA device belongs to lo", roce(), nil},
		{"not ours", "10.9.0.7", "no interface of this host has 10.9.0.7", roce(), nil},
		{"no GID yet", "10.9.0.9", "rxe0 has no GID for 10.9.0.9", roce(), nil},
		{"down", "10.9.0.1", "port 1 of rxe0 is down", tree(func(m map[string]string) { m[port+"state"] = "1: DOWN\n" }), nil},
		{"no state", "10.9.0.1", "port 1 of rxe0 is unknown", tree(func(m map[string]string) { delete(m, port+"state") }), nil},
		{"no node", "10.9.0.1", "load the module ib_uverbs", roce(), func(s *Sources) { s.Nodes = func(string) []string { return nil } }},
		{"denied", "10.9.0.1", "the device node of rxe0: permission denied", roce(), func(s *Sources) {
			s.Usable = func(path string) error {
				if strings.Contains(path, "uverbs") {
					return unix.EACCES
				}
				return nil
			}
		}},
		{"no connection manager", "10.9.0.1", "load the module rdma_ucm", roce(), func(s *Sources) {
			s.Usable = func(path string) error {
				if strings.HasSuffix(path, "rdma_cm") {
					return unix.ENOENT
				}
				return nil
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sources(t, tc.files)
			if tc.change != nil {
				tc.change(&s)
			}
			d, err := Look(s).Locate(netip.MustParseAddr(tc.addr))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %v, want %s", d, err, tc.want)
			}
		})
	}
}

// A tree that contradicts itself, or is no sysfs tree at all, is a problem and not an
// error.
func TestBadInput(t *testing.T) {
	tree := func(change func(m map[string]string)) map[string]string { m := roce(); change(m); return m }
	port := "class/infiniband/rxe0/ports/1/"
	for _, tc := range []struct {
		name, want string // a problem, "" = none
		files      map[string]string
		change     func(s *Sources)
	}{
		{"no such device in netlink", "rxe0 is in sysfs and not in RDMA netlink", roce(), func(s *Sources) {
			s.Links = func() (map[string]map[int]string, error) { return nil, nil }
		}},
		{"netlink fails", "RDMA netlink: permission denied", roce(), func(s *Sources) {
			s.Links = func() (map[string]map[int]string, error) { return nil, unix.EACCES }
		}},
		{"more in netlink", "siw0 is in RDMA netlink and not in sysfs", roce(), nil},
		{"another interface", "port 1 of rxe0: netlink says its interface is eth5, sysfs eth0", roce(), func(s *Sources) {
			s.Links = func() (map[string]map[int]string, error) { return map[string]map[int]string{"rxe0": {1: "eth5"}}, nil }
		}},
		{"rdmamap", "rdmamap says that eth0 is of mlx5_0, sysfs that it is of rxe0", roce(), func(s *Sources) {
			s.Map = func(string) string { return "mlx5_0" }
		}},
		{"no GID", `GID 1 of port 1 is "garbage"`, tree(func(m map[string]string) { m[port+"gids/1"] = "garbage\n" }), nil},
		{"a short GID", `GID 1 of port 1 is "10.9.0.1"`, tree(func(m map[string]string) { m[port+"gids/1"] = "10.9.0.1\n" }), nil},
		{"no ports", "rxe0: its ports:", map[string]string{"class/infiniband/rxe0/node_type": "1: CA\n"}, nil},
		{"strange names", "", tree(func(m map[string]string) {
			m["class/infiniband/rxe0/ports/99999999999999999999/state"] = "4: ACTIVE"
			m["class/infiniband/rxe0/ports/-1/state"] = "4: ACTIVE"
			m["class/infiniband/rxe0/ports/01/state"] = "4: ACTIVE"
			m[port+"gids/x"] = "y"
		}), func(s *Sources) {
			s.Links = func() (map[string]map[int]string, error) { return map[string]map[int]string{"rxe0": {1: "eth0"}}, nil }
		}},
		{"a value of no end", "", tree(func(m map[string]string) { m[port+"gids/1"] = strings.Repeat("f", 1<<20) }), func(s *Sources) {
			s.Links = func() (map[string]map[int]string, error) { return map[string]map[int]string{"rxe0": {1: "eth0"}}, nil }
		}},
		{"interfaces", "the interfaces of this host: input/output error", nil, func(s *Sources) {
			s.Interfaces = func() (map[netip.Addr]string, error) { return nil, unix.EIO }
			s.Links = func() (map[string]map[int]string, error) { return nil, errors.New("no RDMA") }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := sources(t, tc.files)
			if tc.change != nil {
				tc.change(&s)
			}
			h := Look(s)
			if tc.want == "" && len(h.Problems) > 0 || tc.want != "" && !strings.Contains(strings.Join(h.Problems, "\n"), tc.want) {
				t.Errorf("problems %q, want %q", h.Problems, tc.want)
			}
			if n := len(h.Devices); n > 1 || n == 1 && len(h.Devices[0].Ports) > 1 {
				t.Errorf("%+v", h.Devices)
			}
		})
	}
}

// The test looks at this host, whatever devices it has.
func TestHere(t *testing.T) {
	h := Look(Sources{})
	if d, err := h.Locate(netip.MustParseAddr("192.0.2.1")); err == nil {
		t.Errorf("%+v has 192.0.2.1", d)
	}
}

func FuzzPort(f *testing.F) {
	attr := func(typ uint16, v []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
		b = append(binary.NativeEndian.AppendUint16(b, typ), v...)
		return append(b, make([]byte, (4-len(v)%4)%4)...)
	}
	whole := append(attr(attrPortIndex, binary.NativeEndian.AppendUint32(nil, 1)), attr(attrNdevName, []byte("eth0\x00"))...)
	if n, name := parsePort(whole); n != 1 || name != "eth0" {
		f.Fatal(n, name)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-5])
	f.Add(attr(attrNdevName, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, name := parsePort(b); strings.Contains(name, "\x00") {
			t.Errorf("%q", name)
		}
	})
}
