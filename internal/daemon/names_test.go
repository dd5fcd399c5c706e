package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"golang.org/x/sys/unix"
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
			if c.d.peerAllowed(netip.MustParseAddr(s)) == nil {
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

// TestLocalPeers: an address of this host is a peer only if peers.allow names it itself,
// because every process of the host can connect from it. Networks and names do not do that,
// and status says so.
func TestLocalPeers(t *testing.T) {
	here := netip.MustParseAddr("10.0.0.7")
	known := answers{"hostb": "10.0.0.2", "self": here.String(), "any": "0.0.0.0", "loop": "127.0.1.1"}
	before, asks := resolver, isLocal
	resolver, isLocal = known, func(a netip.Addr) (bool, error) { return a == here, nil }
	t.Cleanup(func() { resolver, isLocal = before, asks })
	network := netip.MustParsePrefix("10.0.0.0/24")
	literal := config.Allowed{Net: netip.PrefixFrom(here, here.BitLen())}
	for _, tc := range []struct {
		allow        config.Allowed
		addr         netip.Addr
		err, warning string
	}{
		{config.Allowed{Net: network}, here, "is an address of this host", ""},
		{config.Allowed{Net: network}, here.Prev(), "", ""},
		{literal, here, "", ""},
		{config.Allowed{Name: "self"}, here, "is an address of this host", "peers.allow: self is " + here.String() + ", which is an address of this host"},
		{config.Allowed{Name: "loop"}, netip.MustParseAddr("127.0.1.1"), "not in peers.allow", "peers.allow: loop is 127.0.1.1"},
		{config.Allowed{Name: "any"}, netip.MustParseAddr("0.0.0.0"), "not in peers.allow", "peers.allow: any is 0.0.0.0"},
		{config.Allowed{Name: "hostb"}, netip.MustParseAddr("10.0.0.2"), "", ""},
	} {
		c := config.Default()
		c.Listen = []netip.Addr{netip.MustParseAddr("198.51.100.7")}
		c.Peers.Allow = []config.Allowed{tc.allow}
		if err := resolve(&c); err != nil {
			t.Fatal(err)
		}
		var s settings
		s.set(&c)
		err := s.peerAllowed(tc.addr)
		if (err == nil) != (tc.err == "") || err != nil && (!errors.Is(err, engine.ErrNotAllowed) || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("allow %v: %v: %v, want %q", tc.allow, tc.addr, err, tc.err)
		}
		if w := strings.Join(s.nameWarnings(), "; "); !strings.HasPrefix(w, tc.warning) || tc.warning == "" && w != "" {
			t.Errorf("allow %v: warnings %q, want %q", tc.allow, w, tc.warning)
		}
	}
	// A host's own name in a list that all hosts have is no reason to warn.
	c := config.Default()
	c.Listen = []netip.Addr{here}
	c.Peers.Allow = []config.Allowed{{Name: "self"}, {Name: "hostb"}}
	if err := resolve(&c); err != nil {
		t.Fatal(err)
	}
	var s settings
	s.set(&c)
	if w := s.nameWarnings(); w != nil {
		t.Errorf("a host's own name: %q", w)
	}
}

// A kernel that does not say whether an address is this host's does not make it a peer.
func TestLocalUnknown(t *testing.T) {
	asks := isLocal
	isLocal = func(netip.Addr) (bool, error) { return false, unix.EMFILE }
	t.Cleanup(func() { isLocal = asks })
	c := config.Default()
	c.Peers.Allow = []config.Allowed{{Net: netip.MustParsePrefix("10.0.0.0/24")}}
	var s settings
	s.set(&c)
	if err := s.peerAllowed(netip.MustParseAddr("10.0.0.7")); !errors.Is(err, engine.ErrNotAllowed) || !errors.Is(err, unix.EMFILE) {
		t.Error(err)
	}
}
