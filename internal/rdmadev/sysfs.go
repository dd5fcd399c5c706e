package rdmadev

import (
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxPorts and maxGIDs are above what any device has. More entries than that are ignored.
const (
	maxPorts = 255
	maxGIDs  = 4096
	maxValue = 4096 // bytes of a file
)

// readSys fills in the devices.
func (h *Host) readSys(s *Sources) {
	class := filepath.Join(s.Sys, "class/infiniband")
	names, err := list(class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.problem("%v", err)
	}
	for _, name := range names {
		dir := filepath.Join(class, name)
		d := Device{Name: name, IWARP: afterColon(value(dir, "node_type")) == "RNIC", GUID: value(dir, "node_guid")}
		for _, path := range s.Nodes(name) {
			n := Node{path, s.Usable(path)}
			d.Nodes = append(d.Nodes, n)
			if strings.HasPrefix(filepath.Base(path), "uverbs") {
				d.Node, d.node = path, n.Err
			}
		}
		ports, err := numbers(filepath.Join(dir, "ports"), maxPorts)
		if err != nil {
			h.problem("%s: its ports: %v", name, err)
		}
		for _, n := range ports {
			d.Ports = append(d.Ports, h.readPort(name, filepath.Join(dir, "ports", strconv.Itoa(n)), n))
		}
		h.Devices = append(h.Devices, d)
	}
}

func (h *Host) readPort(dev, dir string, n int) Port {
	p := Port{Num: n, State: afterColon(value(dir, "state")), LinkLayer: value(dir, "link_layer")}
	if p.State == "" {
		p.State = "UNKNOWN"
	}
	indices, err := numbers(filepath.Join(dir, "gids"), maxGIDs)
	if err != nil {
		h.problem("%s: GIDs of port %d: %v", dev, n, err)
	}
	for _, i := range indices {
		x := strconv.Itoa(i)
		text := value(dir, "gids/"+x)
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is6() {
			if text != "" {
				h.problem("%s: GID %d of port %d is %q", dev, i, n, text)
			}
			continue
		}
		if a.IsUnspecified() {
			continue
		}
		g := GID{Index: i, Addr: a.Unmap(), Type: value(dir, "gid_attrs/types/"+x), NetDev: value(dir, "gid_attrs/ndevs/"+x)}
		p.GIDs = append(p.GIDs, g)
		if g.NetDev != "" && !slices.Contains(p.NetDevs, g.NetDev) {
			p.NetDevs = append(p.NetDevs, g.NetDev)
		}
	}
	slices.Sort(p.NetDevs)
	return p
}

// list is a folder's entries, sorted. In sysfs most are symbolic links.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// numbers is a folder's entries that are numbers up to limit, in order.
func numbers(dir string, limit int) ([]int, error) {
	names, err := list(dir)
	var all []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= limit && strconv.Itoa(n) == name {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, err
}

// value is a file's one line. It is "" if the file is longer than any value, or cannot be
// read; sysfs refuses to read entries that are not set.
func value(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	if err != nil || len(b) > maxValue {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// afterColon returns "ACTIVE" for "4: ACTIVE".
func afterColon(s string) string {
	_, after, ok := strings.Cut(s, ":")
	if !ok {
		return s
	}
	return strings.TrimSpace(after)
}
