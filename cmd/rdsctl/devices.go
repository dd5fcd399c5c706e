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

func devicesVerb(*flag.FlagSet) action {
	return func(ctx context.Context, a *app, o *options, _ string) int {
		return a.ask(ctx, o, ctl.Request{Kind: ctl.KindDevices}, func(r *ctl.Response) { showDevices(a.stdout, r.Devices) })
	}
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
