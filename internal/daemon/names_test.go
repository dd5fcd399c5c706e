package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
)

// answers is a resolver. A name without an answer is not known.
type answers map[string]string

func (r answers) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	a, err := netip.ParseAddr(r[host])
	if err != nil || a.Is4() != (network == "ip4") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{a}, nil
}

// TestNames: a name in peers.allow allows the address that it has at the start and at each
// reload. A name without an address is a warning at the start and an error of a reload.
func TestNames(t *testing.T) {
	known := answers{"hostb": "10.0.0.2"}
	before := resolver
	resolver = known
	t.Cleanup(func() { resolver = before })
	c := newCrowd(t, func(cfg *config.Config) { cfg.Peers.Allow = []config.Allowed{{Name: "hostb"}, {Name: "hostc"}} })
	var next *config.Loaded
	c.d.ReloadFrom(func() (*config.Loaded, error) { return next, nil }, config.Origins{}, &slog.LevelVar{})
	load := func(names ...string) {
		next = &config.Loaded{Config: *c.d.config(), Origins: config.Origins{}}
		next.Peers.Allow = nil
		for _, n := range names {
			next.Peers.Allow = append(next.Peers.Allow, config.Allowed{Name: n})
		}
	}
	allowed := func(want string) {
		t.Helper()
		var got []string
		for _, s := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"} {
			if c.d.peerAllowed(netip.MustParseAddr(s)) {
				got = append(got, s)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("allowed: %v, want %s", got, want)
		}
	}
	allowed("10.0.0.2")
	if w := strings.Join(c.d.nameWarnings(), "; "); !strings.HasPrefix(w, "peers.allow: hostc: the system's resolver has no address for it") {
		t.Errorf("warnings at the start: %q", w)
	}

	load("hostb", "hostc")
	if _, err := c.d.Reload(); err == nil || !strings.Contains(err.Error(), "peers.allow: hostc: the system's resolver") {
		t.Errorf("a reload with a name that is not known: %v", err)
	}
	allowed("10.0.0.2")

	known["hostb"], known["hostc"] = "10.0.0.3", "10.0.0.4"
	r, err := c.d.Reload()
	if err != nil || len(r.Applied) != 1 || r.Applied[0].Old != "hostb (10.0.0.2),hostc (no address)" || r.Applied[0].New != "hostb (10.0.0.3),hostc (10.0.0.4)" {
		t.Errorf("%+v, %v", r, err)
	}
	allowed("10.0.0.3 10.0.0.4")
	if w := c.d.nameWarnings(); w != nil {
		t.Errorf("warnings after the reload: %q", w)
	}
	if r, err := c.d.Reload(); err != nil || len(r.Applied) != 0 {
		t.Errorf("nothing changed: %+v, %v", r, err)
	}
	load("hostc")
	if _, err := c.d.Reload(); err != nil {
		t.Error(err)
	}
	allowed("10.0.0.4")
}
