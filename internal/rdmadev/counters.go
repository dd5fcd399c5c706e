package rdmadev

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"
)

// Counter is a counter of a device or of a port, as the device names it and in the device's unit.
type Counter struct {
	Name  string
	Value uint64
}

// maxCounters bounds the counters of one device or port. Devices have about a hundred.
const maxCounters = 256

// counters reads what rdmamap finds of a port in the folders counters and hw_counters of
// sysfs. A device may lack either.
func counters(device string, port int) (out []Counter) {
	for _, read := range []func(string, int) ([]rdmamap.RdmaStatEntry, error){rdmamap.GetRdmaSysfsStats, rdmamap.GetRdmaSysfsHwStats} {
		entries, err := read(device, port)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if isCounter(e.Name) {
				out = append(out, Counter{e.Name, e.Value})
			}
		}
	}
	return sorted(out)
}

// sorted puts counters into the order of their names, without the second of two and those beyond
// maxCounters.
func sorted(out []Counter) []Counter {
	by := map[string]uint64{}
	for _, c := range slices.Backward(out) {
		by[c.Name] = c.Value
	}
	out = nil
	for _, name := range slices.Sorted(maps.Keys(by)) { // as strings: a sort of counters is eight kilobytes more
		out = append(out, Counter{name, by[name]})
	}
	return out[:min(len(out), maxCounters)]
}

// isCounter reports whether name is made as names in JSON and of metrics are. lifespan is no
// counter: it says how often the device is asked for the others.
func isCounter(name string) bool {
	return name != "" && name != "lifespan" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// Counters reads the counters of one port of d. They are those of this moment.
func (h *Host) Counters(d *Device, port int) []Counter { return h.counters(d.Name, port) }

// DeviceCounters reads the counters of d as a whole: the folder hw_counters beside its ports,
// which rdmamap does not read. Most devices have none.
func (h *Host) DeviceCounters(d *Device) (out []Counter) {
	dir := filepath.Join(h.sys, "class/infiniband", d.Name, "hw_counters")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !isCounter(e.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			out = append(out, Counter{e.Name(), n})
		}
	}
	return sorted(out)
}

// Node is a character device that connections over an RDMA device need.
type Node struct {
	Path string
	Err  error // why it cannot be opened for reading and writing, or nil
}

// charDevices are the character devices that rdmamap finds for a device, without those for
// management packets and subnet managers, which connections do not need.
func charDevices(device string) (out []string) {
	for _, p := range rdmamap.GetRdmaCharDevices(device) {
		if name := filepath.Base(p); strings.HasPrefix(name, "uverbs") || name == "rdma_cm" {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// Folders are the folders of sysfs that have the devices' counters. Links are resolved.
func (h *Host) Folders() (out []string) {
	for i := range h.Devices {
		if real, err := filepath.EvalSymlinks(filepath.Join(h.sys, "class/infiniband", h.Devices[i].Name)); err == nil {
			out = append(out, real)
		}
	}
	return out
}
