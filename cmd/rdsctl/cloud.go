package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
)

// clouds are networks that limit each TCP flow, by what the firmware of their virtual machines says in a file of
// class/dmi/id. Azure's is its asset tag, because other Hyper-V machines have the same vendor.
var clouds = []struct{ file, text, name, limit string }{
	{"sys_vendor", "Amazon EC2", "Amazon EC2", "to 5 Gbit/s, unless both hosts are in one cluster placement group"},
	{"product_name", "Google Compute Engine", "Google Compute Engine", "to less than the host's bandwidth"},
	{"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "Azure", "to less than the host's bandwidth"},
}

// cloud returns the cloud that the host is in, and to what it limits each TCP flow. name is "" if it is in none of
// clouds.
func (d *doctor) cloud() (name, limit string) {
	for _, c := range clouds {
		b, err := os.ReadFile(filepath.Join(d.sys, "class/dmi/id", c.file))
		if err == nil && strings.TrimSpace(string(b)) == c.text {
			return c.name, c.limit
		}
	}
	return "", ""
}

// paths suggests several paths in a cloud if connections are TCP and have one.
func (d *doctor) paths(s *ctl.Status, cloud, limit string) {
	if slices.ContainsFunc(s.Transports, func(t ctl.Choice) bool { return t.Used && t.Name == string(config.TransportVerbs) }) {
		return
	}
	_, r, err := d.once(d.ctx, d.o, ctl.Request{Kind: ctl.KindConfig})
	if err != nil {
		d.say(findSkipped, "paths", "", "%s", err)
		return
	}
	i := slices.IndexFunc(r.Config, func(v ctl.ConfigValue) bool { return v.Key == "peers.paths" })
	switch {
	case i < 0: // an older daemon
	case r.Config[i].Value != "1":
		d.say(findOK, "paths", "", "%s limits each TCP flow, and peers.paths is %s", cloud, r.Config[i].Value)
	default:
		d.say(findNote, "paths", "on both hosts peers.paths = 4, then restart the daemons; only sockets whose ports differ modulo 4 have flows of their own (docs/operations.md, Several paths)",
			"%s limits each TCP flow %s, and all sockets of a lane share one flow to each peer: peers.paths is 1", cloud, limit)
	}
}
