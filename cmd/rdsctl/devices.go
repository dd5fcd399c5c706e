package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rdsd/rdsd/internal/ctl"
)

func devicesVerb(fs *flag.FlagSet) action {
	counters := fs.Bool("counters", false, "also list the counters of devices and ports that are not 0")
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.ask(ctx, o, ctl.Request{Kind: ctl.KindDevices}, func(r *ctl.Response) {
			showDevices(a.stdout, r.Devices)
			if *counters {
				showDeviceCounters(a.stdout, r.Devices)
			}
		})
	}
}

// showNodes names the character devices that the daemon cannot use.
func showNodes(w io.Writer, d *ctl.Devices) {
	for i := range d.Devices {
		for _, n := range d.Devices[i].Nodes {
			if n.Problem != "" {
				fmt.Fprintf(w, "warning: %s: the daemon cannot use %s: %s\n", d.Devices[i].Name, n.Path, printable(n.Problem))
			}
		}
	}
}

// showDeviceCounters lists the counters that are not 0.
func showDeviceCounters(w io.Writer, d *ctl.Devices) {
	var rows [][]string
	add := func(device, port string, counters ctl.CounterList) {
		for _, c := range counters {
			if c.Value != 0 {
				rows = append(rows, []string{device, port, printable(c.Name), count(c.Value)})
			}
		}
	}
	for i := range d.Devices {
		x := &d.Devices[i]
		add(x.Name, "-", x.Counters)
		for _, p := range x.Ports {
			add(x.Name, strconv.Itoa(p.Number), p.Counters)
		}
	}
	fmt.Fprintln(w)
	if len(rows) == 0 {
		fmt.Fprintln(w, "no counter of a device or port is above 0")
		return
	}
	showTable(w, []string{"DEVICE", "PORT", "COUNTER", "VALUE"}, []bool{false, true, false, true}, rows)
}

// showDevices writes a line for each port, then one for each address.
func showDevices(w io.Writer, d *ctl.Devices) {
	var rows [][]string
	for i := range d.Devices {
		x := &d.Devices[i]
		for _, p := range x.Ports {
			var types []string
			for _, g := range p.GIDs {
				if !strings.Contains(strings.Join(types, ","), g.Type) {
					types = append(types, g.Type)
				}
			}
			rows = append(rows, []string{x.Name, x.Kind, strconv.Itoa(p.Number), p.State, p.LinkLayer, cell(strings.Join(p.Interfaces, ","), "none"),
				cell(strings.Join(types, ","), "-"), cell(x.Node, "none"), yesNo(x.Used)})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "this host had no RDMA device when the daemon started")
	} else {
		showTable(w, []string{"DEVICE", "KIND", "PORT", "STATE", "LINK-LAYER", "INTERFACES", "GID-TYPES", "NODE", "USED"}, nil, rows)
		showNodes(w, d)
	}
	if !d.Built {
		fmt.Fprintln(w, "this build has no libibverbs: make build-ibv")
	}
	fmt.Fprintln(w)
	rows = nil
	for _, a := range d.Addresses {
		rows = append(rows, []string{a.Addr.String(), cell(strings.Join(a.Transports, ","), "none"), cell(a.Device, "-"), cell(a.WhyNotVerbs, "-")})
	}
	showTable(w, []string{"ADDR", "TRANSPORTS", "DEVICE", "WHY-NOT-VERBS"}, nil, rows)
	for _, p := range d.Problems {
		fmt.Fprintln(w, "warning:", p)
	}
}
