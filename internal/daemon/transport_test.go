package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/rdmadev"
	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// fakeHost is a host with soft-RoCE on eth0 (10.9.0.1), another adapter on eth1
// (10.9.1.1) and iWARP on eth2 (10.9.2.1), by a tree like sysfs's.
func fakeHost(t *testing.T) *rdmadev.Host {
	t.Helper()
	dir := t.TempDir()
	for i, d := range []struct{ name, node, gid string }{
		{"rxe0", "1: CA", "0000:0000:0000:0000:0000:ffff:0a09:0001"},
		{"rxe1", "1: CA", "0000:0000:0000:0000:0000:ffff:0a09:0101"},
		{"siw0", "4: RNIC", "5254:0000:000b:0000:0000:0000:0000:0000"},
	} {
		port := "class/infiniband/" + d.name + "/ports/1/"
		for name, text := range map[string]string{
			"class/infiniband/" + d.name + "/node_type": d.node, "class/infiniband/" + d.name + "/node_guid": "0:0:0:1",
			port + "state": "4: ACTIVE", port + "link_layer": "Ethernet", port + "gids/0": d.gid, port + "gid_attrs/ndevs/0": fmt.Sprintf("eth%d", i),
		} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return rdmadev.Look(rdmadev.Sources{Sys: dir, Usable: func(string) error { return nil }, Map: func(string) string { return "" },
		Nodes: func(device string) []string { return []string{"/dev/infiniband/uverbs_" + device} },
		Links: func() (map[string]map[int]string, error) {
			return map[string]map[int]string{"rxe0": {1: "eth0"}, "rxe1": {1: "eth1"}, "siw0": {1: "eth2"}}, nil
		},
		Interfaces: func() (map[netip.Addr]string, error) {
			return map[netip.Addr]string{netip.MustParseAddr("127.0.0.1"): "lo", netip.MustParseAddr("10.9.0.1"): "eth0",
				netip.MustParseAddr("10.9.1.1"): "eth1", netip.MustParseAddr("10.9.2.1"): "eth2"}, nil
		}})
}

// named is an adapter that only has a name.
type named struct {
	verbs.Device
	name string
}

func (n named) Attr() verbs.DeviceAttr { return verbs.DeviceAttr{Name: n.name} }
func (n named) Close() error           { return nil }

func TestChoose(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings map[string]string
		none     bool // no RDMA devices
		notBuilt bool
		openErr  error
		want     []string // of each address: transports, and a part of why not verbs
		err      string
	}{
		{"auto", map[string]string{"listen": "10.9.0.1,127.0.0.1"}, false, false, nil,
			[]string{"verbs+soft on rxe0", "soft: no RDMA device belongs to lo"}, ""},
		{"nothing there", map[string]string{"listen": "10.9.0.1"}, true, false, nil, []string{"soft: this host has no RDMA device"}, ""},
		{"not built", map[string]string{"listen": "10.9.0.1"}, false, true, nil, []string{"soft: rxe0 has it, and this build has no libibverbs: make build-ibv"}, ""},
		{"TLS", map[string]string{"listen": "10.9.0.1", "tls.mode": "auto"}, false, false, nil, []string{"soft: rxe0 has it, but there is no TLS on an adapter, and tls.mode is auto"}, ""},
		{"not opened", map[string]string{"listen": "10.9.0.1"}, false, false, unix.EACCES, []string{"soft: permission denied"}, ""},
		{"one adapter", map[string]string{"listen": "10.9.0.1,10.9.1.1"}, false, false, nil,
			[]string{"verbs+soft on rxe0", "soft: rxe1 has it, and the daemon uses rxe0: it uses one adapter"}, ""},
		{"the one that must be", map[string]string{"listen": "10.9.0.1,10.9.1.1", "transport_rules": "verbs local=10.9.1.1"}, false, false, nil,
			[]string{"soft: rxe0 has it, and the daemon uses rxe1: it uses one adapter", "verbs on rxe1"}, ""},
		{"iWARP", map[string]string{"listen": "10.9.2.1"}, false, false, nil, []string{"verbs on siw0"}, ""},
		{"soft", map[string]string{"listen": "10.9.0.1", "transport": "soft"}, false, false, nil, []string{"soft: the key transport names another"}, ""},
		{"verbs", map[string]string{"listen": "10.9.0.1", "transport": "verbs"}, false, false, nil, []string{"verbs on rxe0"}, ""},
		{"verbs, not opened", map[string]string{"listen": "10.9.0.1", "transport": "verbs"}, false, false, unix.ENODEV, nil, "transport verbs: no such device"},
		{"a peer by soft", map[string]string{"listen": "10.9.0.1", "transport": "verbs", "transport_rules": "soft peer=10.9.0.9"}, false, false, nil, []string{"verbs+soft on rxe0"}, ""},
		{"tcp", map[string]string{"listen": "10.9.0.1", "transport": "tcp"}, false, false, nil, []string{": the key transport names another"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Transport, cfg.TLS.Mode = config.TransportAuto, config.TLSOff
			for k, v := range tc.settings {
				if err := cfg.Set(k, v); err != nil {
					t.Fatal(err)
				}
			}
			host := fakeHost(t)
			if tc.none {
				host = rdmadev.Look(rdmadev.Sources{Sys: t.TempDir()})
			}
			tr, err := choose(&cfg, host, !tc.notBuilt, func(a netip.Addr) (verbs.Device, error) {
				if tc.openErr != nil {
					return nil, tc.openErr
				}
				dev, err := host.Locate(a)
				if err != nil {
					return nil, err
				}
				return named{name: dev.Name}, nil
			})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range tr.locals {
				var by []string
				if p.verbs {
					by = append(by, "verbs")
				}
				if p.soft {
					by = append(by, "soft")
				}
				got := strings.Join(by, "+")
				if p.verbs {
					got += " on " + tr.name
				}
				if p.whyNotVerbs != nil {
					got += ": " + p.whyNotVerbs.Error()
				}
				if !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("%v: %q, want %q", p.addr, got, tc.want[i])
				}
			}
		})
	}
}

// What a daemon says of its transports. A test's build has no libibverbs, and
// this host most likely no device.
func TestDevices(t *testing.T) {
	d := startDaemon(t, func(c *config.Config) { c.Transport = config.TransportAuto })
	dev, err := backend{d: d}.Devices()
	if err != nil || len(dev.Addresses) == 0 || dev.Addresses[0].WhyNotVerbs == "" || strings.Join(dev.Addresses[0].Transports, "") != "soft" {
		t.Errorf("%+v, %v", dev, err)
	}
	s, err := backend{d: d}.Status()
	if err != nil || len(s.Transports) != 3 || s.Transports[0].Used || !s.Transports[1].Used || s.Transports[2].Used {
		t.Errorf("%+v, %v", s.Transports, err)
	}
}
