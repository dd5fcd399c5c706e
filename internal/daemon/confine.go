package daemon

import (
	"path/filepath"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Confine gives up, for the whole process and for good, what the daemon does not need to
// serve. configFile is the file that Reload reads; "": there is none. Call Confine between
// New and Run, in a program that is nothing but this daemon.
func (d *Daemon) Confine(configFile string) {
	c := d.config()
	if c.Sandbox == config.SandboxOff {
		d.sandbox = "off"
		return
	}
	r := sandbox.Rules{
		// The process's own figures, for metrics.
		Read:  []string{"/proc/self", "/etc/localtime", "/usr/share/zoneinfo"},
		Write: []string{filepath.Dir(c.Socket), filepath.Dir(c.Stats)},
		// Congestion control that ordinary users may not choose; memory that
		// devices write to.
		Capabilities: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK},
	}
	r.Read = append(r.Read, tlsFolders(c)...)
	r.Read = append(r.Read, resolverPaths()...)
	if configFile != "" { // its folder: an editor replaces the file, and there are drop-ins
		r.Read = append(r.Read, filepath.Dir(configFile))
	}
	rep := sandbox.Apply(r)
	d.sandbox = rep.String()
	d.log.Info("sandbox", "result", d.sandbox)
}
