package rdmadev

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"
)

// Counter is one of a port's counters, as the device names it and in the device's unit.
type Counter struct {
	Name  string
	Value uint64
}

// maxCounters bounds the counters of one port. Devices have about a hundred.
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
			if e.Name != "lifespan" && isCounter(e.Name) { // lifespan is how often the others are read
				out = append(out, Counter{e.Name, e.Value})
			}
		}
	}
	slices.SortFunc(out, func(a, b Counter) int { return cmp.Compare(a.Name, b.Name) })
	out = slices.CompactFunc(out, func(a, b Counter) bool { return a.Name == b.Name })
	return out[:min(len(out), maxCounters)]
}

// isCounter reports whether name is made as names in JSON and of metrics are.
func isCounter(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// Counters reads the counters of one port of d. They are those of this moment.
func (h *Host) Counters(d *Device, port int) []Counter { return h.counters(d.Name, port) }

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
