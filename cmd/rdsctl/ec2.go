package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
)

// inEC2 reports whether the host is a virtual machine of Amazon EC2, as its firmware says. EC2 limits each TCP flow
// (Amazon EC2 User Guide, instance network bandwidth, single-flow traffic); Azure's and Google's documentation names
// limits of whole hosts alone.
func (d *doctor) inEC2() bool {
	b, err := os.ReadFile(filepath.Join(d.sys, "class/dmi/id/sys_vendor"))
	return err == nil && strings.TrimSpace(string(b)) == "Amazon EC2"
}

// paths suggests several paths in EC2 if connections are TCP and have one.
func (d *doctor) paths(s *ctl.Status) {
	if !d.inEC2() || slices.ContainsFunc(s.Transports, func(t ctl.Choice) bool { return t.Used && t.Name == string(config.TransportVerbs) }) {
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
		d.say(findOK, "paths", "", "Amazon EC2 limits each TCP flow, and peers.paths is %s", r.Config[i].Value)
	default:
		d.say(findNote, "paths", "on both hosts peers.paths = 4, then restart the daemons; only sockets whose ports differ modulo 4 have flows of their own (docs/operations.md, Several paths)",
			"Amazon EC2 limits each TCP flow to 5 Gbit/s, unless both hosts are in one cluster placement group, and all sockets of a lane share one flow to each peer: peers.paths is 1")
	}
}
