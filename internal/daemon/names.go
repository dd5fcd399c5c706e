package daemon

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/hosts"
)

// resolveTimeout bounds the lookups of all names of a configuration.
const resolveTimeout = 5 * time.Second

// resolver looks up the names of peers.allow. Tests replace it.
var resolver hosts.Resolver = net.DefaultResolver

// isLocal reports whether an address belongs to this host. Tests replace it.
var isLocal = hosts.IsLocal

// resolve looks up the names in c's peers.allow. It blocks, so the engine's goroutine must
// not call it.
func resolve(c *config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	return c.Resolve(ctx, resolver)
}

// nameWarnings are the warnings about names in peers.allow for the status. A name that
// stands for an address of listen is this host in a list that all hosts have.
func (s *settings) nameWarnings() (out []string) {
	c := s.config()
	for _, a := range c.Peers.Allow {
		if a.Why != nil {
			out = append(out, "peers.allow: "+a.Why.Error()+"; nobody is allowed by it until a reload finds an address")
		}
		for _, addr := range a.Addrs {
			if err := s.peerAllowed(addr); err != nil && !slices.Contains(c.Listen, addr) {
				out = append(out, fmt.Sprintf("peers.allow: %s is %v, which is an address of this host or of no host: a name does not allow it; if a daemon there is a peer, write the address", a.Name, addr))
			}
		}
	}
	return out
}

// movedNames is the change of a reload that finds other addresses of the names in
// peers.allow. It is nil if there is none.
func movedNames(old, next *config.Config, from config.Origins) *ctl.ConfigChange {
	was, is := old.Names(), next.Names()
	if slices.Equal(was, is) {
		return nil
	}
	return &ctl.ConfigChange{Key: "peers.allow", Old: strings.Join(was, ","), New: strings.Join(is, ","), Origin: from["peers.allow"]}
}

// resolverPaths are the files that the system's resolver reads, and the folders of those
// that are links: such a file is replaced while the daemon runs.
func resolverPaths() []string {
	out := []string{"/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"}
	for _, p := range out {
		if real, err := filepath.EvalSymlinks(p); err == nil && filepath.Dir(real) != "/etc" {
			out = append(out, filepath.Dir(real))
		}
	}
	return out
}
