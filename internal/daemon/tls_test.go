package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// tlsConfig is a configuration with the files of dir.
func tlsConfig(dir string) *config.Config {
	c := config.Default()
	c.Listen = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}
	c.Peers.Allow = []config.Allowed{{Net: netip.MustParsePrefix("10.0.0.0/24")}}
	c.TLS.Cert, c.TLS.Key, c.TLS.CA = dir+"/cert.pem", dir+"/key.pem", dir+"/ca.pem"
	return &c
}

func TestLoadTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	good := tlstest.IPs("10.0.0.1")
	for _, tc := range []struct {
		name  string
		edit  func(*tlstest.Cert)
		spoil func(dir string)
		want  string // "": it loads
	}{
		{"good", good, nil, ""},
		{"not there", good, func(d string) { os.Remove(d + "/ca.pem") }, "tls.ca: open "},
		{"no authority", good, func(d string) { os.WriteFile(d+"/ca.pem", []byte("x"), 0o600) }, "holds no certificate in PEM"},
		{"another key", good, func(d string) {
			other := t.TempDir()
			ca.Write(t, other, good)
			os.Rename(other+"/key.pem", d+"/key.pem")
		}, "private key does not match public key"},
		{"another address", tlstest.IPs("10.0.0.2"), nil, "is not for the address 10.0.0.1 of listen"},
		{"server only", func(c *tlstest.Cert) { good(c); tlstest.ServerOnly(c) }, nil, "not good for clientAuth"},
	} {
		dir := t.TempDir()
		ca.Write(t, dir, tc.edit)
		if tc.spoil != nil {
			tc.spoil(dir)
		}
		_, err := loadTLS(tlsConfig(dir))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	// Names instead of addresses: this host's own, and a peer's for tlsFor.
	dir := t.TempDir()
	ca.Write(t, dir, tlstest.Name("host1.test"))
	c := tlsConfig(dir)
	if _, err := loadTLS(c); err == nil || !strings.Contains(err.Error(), "and in tls.names") {
		t.Errorf("a name that tls.names has not: %v", err)
	}
	c.TLS.Names = []config.PeerName{
		{Net: netip.MustParsePrefix("10.0.0.1/32"), Name: "host1.test"}, {Net: netip.MustParsePrefix("10.0.0.2/32"), Name: "host2.test"}}
	cr, err := loadTLS(c)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{}
	d.set(c)
	d.credentials.Store(cr)
	for addr, want := range map[string]string{"10.0.0.2": "host2.test", "10.0.0.3": ""} {
		if cfg, err := d.tlsFor(netip.MustParseAddr(addr)); err != nil || cfg.ServerName != want {
			t.Errorf("%s: %v, want the name %q", addr, err, want)
		}
	}
	none := config.Default()
	if cr, err := loadTLS(&none); cr != nil || err != nil {
		t.Errorf("nothing: %v, %v", cr, err)
	}
}

// TestTLSFor: which connections are secured, and with what a reload left.
func TestTLSFor(t *testing.T) {
	ca, dir := tlstest.NewCA(t), t.TempDir()
	ca.Write(t, dir, tlstest.IPs("10.0.0.1"))
	d := &Daemon{}
	d.set(tlsConfig(dir))
	cr, err := loadTLS(d.config())
	if err != nil {
		t.Fatal(err)
	}
	d.credentials.Store(cr)
	how := func(when string, want map[string]string) {
		t.Helper()
		for addr, want := range want {
			cfg, err := d.tlsFor(netip.MustParseAddr(addr))
			got := "plain"
			if err != nil {
				got = err.Error()
			} else if cfg != nil {
				got = "TLS"
			}
			if got != want {
				t.Errorf("%s: %s: %s, want %s", when, addr, got, want)
			}
		}
	}
	no := engine.ErrNotAllowed.Error()
	how("a network", map[string]string{"10.0.0.7": "TLS", "127.0.0.7": no, "::ffff:127.0.0.7": no, "192.0.2.1": no})
	here := *d.config()
	d.set(&here)
	here.Peers.Allow = append(slices.Clone(here.Peers.Allow), config.Allowed{Net: netip.MustParsePrefix("127.0.0.0/24")})
	how("loopback allowed", map[string]string{"10.0.0.7": "TLS", "127.0.0.7": "TLS", "127.0.1.7": no})
	if _, err := loadTLS(&here); err == nil || !strings.Contains(err.Error(), "is not for the address 127.0.0.1 of listen") {
		t.Errorf("an address that peers reach, and a certificate without it: %v", err)
	}
	here.Listen, here.Peers.Allow = here.Listen[1:], nil
	how("loopback alone", map[string]string{"127.0.0.7": "TLS", "192.0.2.1": no})
	d.set(tlsConfig(dir))
	now := time.Now()
	for _, tc := range []struct {
		at   time.Time
		want string
	}{{now, "expires in 0 days"}, {now.AddDate(0, 0, 2), "expired at"}, {now.AddDate(0, 0, -2), "not valid before"}, {now.AddDate(0, 0, -20), "not valid before"}} {
		if got := strings.Join(d.tlsWarnings(tc.at), "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("at %v: %q, want %q", tc.at, got, tc.want)
		}
	}
	tlstest.NewCA(t).Write(t, dir+"/..", tlstest.IPs("10.0.0.1"))
	os.Rename(filepath.Join(dir, "..", "ca.pem"), dir+"/ca.pem")
	foreign, err := loadTLS(d.config())
	if err != nil || foreign.same(cr) || !cr.same(cr) || foreign.same(nil) {
		t.Fatalf("%v, %v", foreign, err)
	}
	d.credentials.Store(foreign)
	if got := strings.Join(d.tlsWarnings(now), "\n"); !strings.Contains(got, "tls.ca does not trust tls.cert") {
		t.Errorf("%q", got)
	}
	off := *d.config()
	off.TLS.Mode = config.TLSOff
	d.set(&off)
	if got := d.tlsWarnings(now); len(got) != 1 || !strings.Contains(got[0], "10.0.0.1 are neither encrypted") {
		t.Errorf("%q", got)
	}
	accepted := off
	accepted.TLS.Warn = config.WarnOff
	d.set(&accepted)
	if got := d.tlsWarnings(now); len(got) != 0 {
		t.Errorf("with tls.warn = off: %q", got)
	}
}

// TestTLSFolders: a reload behind the sandbox reads what links lead to.
func TestTLSFolders(t *testing.T) {
	dir, real := t.TempDir(), t.TempDir()
	if err := os.WriteFile(real+"/c", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real+"/c", dir+"/cert.pem"); err != nil {
		t.Fatal(err)
	}
	c := tlsConfig(dir)
	got := foldersOf(c.TLS.Cert, c.TLS.Key, c.TLS.CA)
	if !slices.Contains(got, dir) || !slices.Contains(got, real) {
		t.Errorf("%q", got)
	}
}
