package daemon

import (
	"path/filepath"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/sandbox"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Confine gives up, for the whole process and for good, what the daemon does not need to
// serve. Before that it starts the process that can start the daemon's successor.
// configFile is the file that Reload reads; "": there is none. Call Confine between
// New and Run, in a program that is nothing but this daemon.
func (d *Daemon) Confine(configFile string) {
	c := d.config()
	writes := []string{filepath.Dir(c.Socket), filepath.Dir(c.Stats)}
	d.mayBeTakenOver()
	d.keepStarter(writes)
	if c.Sandbox == config.SandboxOff {
		d.sandbox = "off"
		return
	}
	if d.transport.adapter != nil { // docs/adr/0027-no-sandbox-around-rdma-devices.md
		d.sandbox = sandbox.NoNewPrivileges()
		d.log.Info("sandbox", "result", d.sandbox)
		return
	}
	r := sandbox.Rules{
		// The process's own figures, for metrics.
		Read:  []string{"/proc/self", "/etc/localtime", "/usr/share/zoneinfo"},
		Write: writes,
		// Congestion control that ordinary users may not choose; memory that
		// devices write to.
		Capabilities: []cap.Value{cap.NET_ADMIN, cap.IPC_LOCK},
	}
	r.Read = append(r.Read, foldersOf(c.TLS.Cert, c.TLS.Key, c.TLS.CA, c.Upgrade.Token)...)
	r.Read = append(r.Read, resolverPaths()...)
	if len(c.Quota.Accounts) > 0 {
		r.Read = append(r.Read, "/proc") // cgroup of each process that connects
	}
	if configFile != "" { // its folder: an editor replaces the file, and there are drop-ins
		r.Read = append(r.Read, filepath.Dir(configFile))
	}
	r.Read = append(r.Read, d.transport.host.Folders()...)
	d.sandbox = sandbox.Apply(r).String()
	d.log.Info("sandbox", "result", d.sandbox)
}
