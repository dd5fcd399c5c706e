package daemon

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/internal/config"
	"golang.org/x/sys/unix"
)

// freeBind lets a socket be bound to an address that the host does not have yet: one that DHCP
// brings after the start, or that moves between hosts. Under the sandbox nothing can be
// bound later.
func freeBind(network, _ string, c syscall.RawConn) error {
	level, opt := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, opt, 1) }); e != nil {
		return e
	}
	return err
}

// awaited has a warning for each address of the settings that the host does not have at present.
func awaited(cfg *config.Config) (warnings []string) {
	missing := func(key string, a netip.Addr) {
		if local, err := isLocal(a); err == nil && !local && !a.IsUnspecified() {
			warnings = append(warnings, fmt.Sprintf("%s: this host does not have the address %v; rdsd serves there as soon as it has (ip address shows what it has)", key, a))
		}
	}
	for _, a := range cfg.Listen {
		missing("listen", a)
	}
	if m := cfg.Metrics.Listen; m.IsValid() {
		missing("metrics.listen", m.Addr())
	}
	return warnings
}
