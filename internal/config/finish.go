package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/netns"
)

const (
	maxSpin = 10 * time.Millisecond
	// maxSocketPath is the size of sockaddr_un's sun_path without the final NUL.
	maxSocketPath = 107

	systemSocket = "/run/rdsd/rdsd.sock" // of a daemon run by root
	userSocket   = "rdsd.sock"           // in XDG_RUNTIME_DIR
)

// ErrNoSocketPath says that there is no default path for this user's control socket.
var ErrNoSocketPath = errors.New("no path for the control socket: XDG_RUNTIME_DIR is not set; use --socket PATH or RDSD_SOCKET")

// DefaultSocket is the path of the control socket of a daemon that uid runs, if no source
// sets one. Its error is ErrNoSocketPath.
func DefaultSocket(uid int, getenv func(string) string) (string, error) {
	if uid == 0 {
		return systemSocket, nil
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, userSocket), nil
	}
	return "", ErrNoSocketPath
}

// StatsPath is the default path of the statistics file of the daemon with this control
// socket.
func StatsPath(socket string) string { return socket + ".stats" }

// ListsPath is the path of the lists that belong to a statistics file. Its end is their version: a
// daemon of a release with other lists, which takes over or is taken over, has a file of its own.
func ListsPath(stats string) string { return OldListsPath(stats) + "3" }

// OldListsPath is the path of the lists of a daemon of release 0.2.0.
func OldListsPath(stats string) string { return strings.TrimSuffix(stats, ".stats") + ".lists" }

// Finish fills in the values that depend on the user and on other keys, and checks what one
// key alone cannot check. Each error names its key and the cure.
func (c *Config) Finish(uid int, getenv func(string) string) error {
	if c.Socket == "" {
		path, err := DefaultSocket(uid, getenv)
		if err != nil {
			return err
		}
		c.Socket = path
	}
	c.Socket = netns.Path(c.Socket)
	if c.Stats == "" {
		c.Stats = StatsPath(c.Socket)
	}
	return errors.Join(c.checkSocket(), c.checkListen(), c.checkTLS(), c.checkTCP(), c.checkMetrics(), c.checkAccounts())
}

func (c *Config) checkSocket() error {
	switch {
	case len(c.Socket) > maxSocketPath:
		return fmt.Errorf("socket: the path %q has %d bytes, Unix sockets take %d; use a shorter one (--socket)", c.Socket, len(c.Socket), maxSocketPath)
	case strings.HasPrefix(c.Socket, "@"):
		return fmt.Errorf("socket: abstract sockets (%q) have no permissions and are not supported; use a path", c.Socket)
	case ListsPath(c.Stats) == c.Socket:
		return fmt.Errorf("stats: %q has its lists in %q, which is the control socket; use another path", c.Stats, c.Socket)
	case c.Stats == c.Socket:
		return fmt.Errorf("stats: %q is the control socket; use another path", c.Stats)
	}
	return nil
}

func (c *Config) checkListen() error {
	if len(c.Listen) == 0 {
		return errors.New(`listen: no address; give at least one, as in ["127.0.0.1"]`)
	}
	for i, a := range c.Listen {
		switch {
		case a.IsUnspecified():
			return fmt.Errorf("listen: %v is not an address of a host; list each address of this host that peers use", a)
		case a.IsMulticast():
			return fmt.Errorf("listen: %v is a multicast address; list addresses of this host", a)
		case checkScope(netip.PrefixFrom(a, a.BitLen())) != nil:
			return fmt.Errorf("listen: %w", checkScope(netip.PrefixFrom(a, a.BitLen())))
		case slices.Contains(c.Listen[:i], a):
			return fmt.Errorf("listen: %v is listed twice; remove one", a)
		case !a.IsLoopback() && len(c.Peers.Allow) == 0:
			return fmt.Errorf("listen: %v is not a loopback address and peers.allow is empty; set peers.allow to the networks of the peers, as in %s", a, exampleNetwork(a))
		}
	}
	return nil
}

func (c *Config) checkTLS() error {
	t := &c.TLS
	for _, a := range c.Listen {
		if c.InsistsOnVerbs(a) && c.WantsTLS(a) {
			return errors.New(`transport: verbs has no TLS; set tls.mode = "off" if everybody on that network may read and write what is sent, or transport = "soft"`)
		}
	}
	if t.Cert == "" && t.Key == "" && t.CA == "" {
		if t.Mode == TLSOn {
			return errors.New("tls.mode: on, and there is no certificate; set tls.cert, tls.key and tls.ca")
		}
		if t.Mode == TLSOff || len(c.Peers.Allow) == 0 { // that error comes first
			return nil
		}
		for _, a := range c.Listen {
			if !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() {
				return fmt.Errorf(`listen: %v is not a loopback address and there is no certificate; set tls.cert, tls.key and tls.ca, or tls.mode = "off" if everybody on that network may read and write what is sent`, a)
			}
		}
		return nil
	}
	for _, k := range []struct{ name, path string }{{"tls.cert", t.Cert}, {"tls.key", t.Key}, {"tls.ca", t.CA}} {
		if k.path == "" {
			return fmt.Errorf("%s: not set; TLS needs all of tls.cert, tls.key and tls.ca", k.name)
		}
	}
	return nil
}

// Secured reports whether connections to peers use TLS. With tls.mode auto all of them do
// if there is a certificate. Loopback is no exception, because every process of the host
// can connect from there.
func (c *Config) Secured() bool {
	return c.TLS.Mode == TLSOn || c.TLS.Mode == TLSAuto && c.TLS.Cert != ""
}

// WantsTLS reports whether tls.mode forbids plain connections at the listen address a.
func (c *Config) WantsTLS(a netip.Addr) bool {
	return c.Secured() || c.TLS.Mode == TLSAuto && !a.IsLoopback()
}

func (c *Config) checkAccounts() error {
	for _, o := range c.Quota.Overrides {
		if o.Account != "" && len(c.Quota.Accounts) == 0 {
			return fmt.Errorf("quota.overrides: %q names an account, and quota.accounts is empty, so that there is none; name the cgroups there", o.String())
		}
	}
	return nil
}

func (c *Config) checkTCP() error {
	switch {
	case c.TCP.Lanes&(c.TCP.Lanes-1) != 0:
		return fmt.Errorf("tcp.lanes: %d is no power of two; use 1, 2, 4 or 8", c.TCP.Lanes)
	case c.Needs(TransportTCP) && c.TCP.Port == c.Port:
		return fmt.Errorf("tcp.port: %d is port, too; they need one each", c.Port)
	}
	return nil
}

func exampleNetwork(a netip.Addr) string {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return fmt.Sprintf("[%q]", netip.PrefixFrom(a, bits).Masked())
}

func (c *Config) checkMetrics() error {
	if m := c.Metrics.Listen; m.IsValid() && m.Addr().Is6() && m.Addr().IsLinkLocalUnicast() && m.Addr().Zone() == "" {
		return fmt.Errorf("metrics.listen: %v is a link-local address, and needs its interface (zone), as in [fe80::1%%eth0]:9464", m)
	}
	if m := c.Metrics.Listen; m.IsValid() && !m.Addr().IsLoopback() && c.TLS.Cert == "" {
		return fmt.Errorf("metrics.listen: %v is not a loopback address and there is no certificate; set tls.cert, tls.key and tls.ca, or listen on 127.0.0.1", m)
	}
	return nil
}

// SecureMetrics reports whether metrics are served by HTTPS, to clients with a certificate
// of tls.ca. On loopback they are served by HTTP.
func (c *Config) SecureMetrics() bool {
	return c.Metrics.Listen.IsValid() && !c.Metrics.Listen.Addr().IsLoopback()
}
