package e2e

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// newSecured starts a host with TLS. Its certificate, in dir, is from ca.
func newSecured(t *testing.T, ca *tlstest.CA, options ...option) (h *host, dir string) {
	t.Helper()
	addr := newAddress(t)
	dir = t.TempDir()
	ca.Write(t, dir, tlstest.IPs(addr.String()))
	options = append(options, withAddress(addr), withArgs("-tls-cert", dir+"/cert.pem", "-tls-key", dir+"/key.pem", "-tls-ca", dir+"/ca.pem"))
	return newHost(t, options...), dir
}

// TestTLSNames has certificates for names in tls.names, and one for another host's name.
func TestTLSNames(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		addrs := []netip.Addr{newAddress(t), newAddress(t), newAddress(t)}
		var hosts []*host
		for i, name := range []string{"a.test", "b.test", "a.test"} {
			dir := t.TempDir()
			ca.Write(t, dir, tlstest.Name(name))
			args := []string{"-tls-cert", dir + "/cert.pem", "-tls-key", dir + "/key.pem", "-tls-ca", dir + "/ca.pem",
				"-tls-names", addrs[0].String() + " a.test," + addrs[1].String() + " b.test"}
			if i == 2 { // this host's own list has it under the name in its certificate
				args = append(args, "-tls-names", addrs[2].String()+" a.test")
			}
			hosts = append(hosts, newHost(t, withAddress(addrs[i]), withArgs(args...)))
		}
		a, b, impostor := hosts[0], hosts[1], hosts[2]
		contains(t, "rdsctl ping", a.rdsctl("ping", b.addr().String(), "-c", "1"), "1 received")
		if p := a.peer(b); p.TLS == "" {
			t.Errorf("peer %+v", p)
		}
		s := impostor.bind(impostor.open(), 0)
		if _, err := s.SendTo([]byte("x"), netip.AddrPortFrom(b.addr(), 4000)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a refusal", func() error {
			if b.logged("not for its address") == 0 {
				return errors.New("not refused: " + b.Stderr.Tail())
			}
			return nil
		})
		s.Close()
	})
}

// TestTLSIdentities has two pods with one SPIFFE ID, a host that takes any certificate of the
// authority, and a pod of another workload.
func TestTLSIdentities(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		const workload, other = "spiffe://test/ns/rds/sa/rdsd", "spiffe://test/ns/web/sa/shop"
		pods := "127.0.0.0/8 " + workload
		start := func(cert func(*tlstest.Cert), names string) *host {
			dir := t.TempDir()
			ca.Write(t, dir, cert)
			return newHost(t, withArgs("-tls-cert", dir+"/cert.pem", "-tls-key", dir+"/key.pem", "-tls-ca", dir+"/ca.pem", "-tls-names", names))
		}
		a, b := start(tlstest.URI(workload), pods), start(tlstest.URI(workload), pods)
		anybody := start(tlstest.URI(workload), "127.0.0.0/8 *")
		for _, h := range []*host{b, anybody} {
			contains(t, "rdsctl ping", a.rdsctl("ping", h.addr().String(), "-c", "1"), "1 received")
			if p := a.peer(h); p.TLS == "" {
				t.Errorf("peer %+v", p)
			}
		}
		foreign := start(tlstest.URI(other), "127.0.0.0/8 *")
		contains(t, "rdsctl ping", anybody.rdsctl("ping", foreign.addr().String(), "-c", "1"), "1 received")
		s := foreign.bind(foreign.open(), 0)
		if _, err := s.SendTo([]byte("x"), netip.AddrPortFrom(b.addr(), 4000)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a refusal", func() error {
			if b.logged("is for "+other+", not "+workload) == 0 {
				return errors.New("not refused: " + b.Stderr.Tail())
			}
			return nil
		})
		s.Close()
	})
}

// TestTLS checks that everything works with TLS as without, across resets and new certificates.
// A host without a certificate must not get in.
func TestTLS(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		a, dirA := newSecured(t, ca)
		b, dirB := newSecured(t, ca)
		hosts := []*host{a, b}
		l := startLoad(t, a, b, 20000)
		l.progress(500)
		if p := a.peer(b); !strings.HasPrefix(p.TLS, "TLS_") || p.CRC {
			t.Errorf("peer %+v", p)
		}
		contains(t, "rdsctl status", a.rdsctl("status"), "tls  ", "certificate CN=host until", "the certificate expires in 0 days")
		for i := range 6 {
			l.progress(30)
			if err := hosts[i%2].reset(hosts[1-i%2]); err != nil {
				t.Error(err)
			}
		}
		l.progress(100)

		// New certificates come from a new authority, which both hosts trust by now. Connections
		// that are there stay. Later ones use the new certificates.
		next := tlstest.NewCA(t)
		before := a.peer(b).Resets
		next.Write(t, dirA, tlstest.IPs(a.addr().String()))
		next.Write(t, dirB, tlstest.IPs(b.addr().String()))
		for _, h := range hosts {
			r, err := h.ask(ctl.Request{Kind: ctl.KindReload})
			if err != nil || len(r.Reload.Applied) != 1 || r.Reload.Applied[0].Key != "tls.cert" {
				t.Fatalf("reload: %+v, %v", r, err)
			}
		}
		l.progress(500)
		if p := a.peer(b); p.Resets != before || p.State != "up" {
			t.Errorf("%d resets before new certificates, now %+v", before, p)
		}
		if err := a.reset(b); err != nil {
			t.Error(err)
		}
		l.progress(500)
		if p := a.peer(b); p.TLS == "" {
			t.Errorf("peer %+v", p)
		}
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
		if l.ops.sums[rds.Unknown] > 0 {
			t.Errorf("statuses %v", l.ops.sums)
		}

		// One host has a certificate of the old authority, and one has none.
		old, _ := newSecured(t, ca)
		plain := newHost(t)
		for _, c := range []struct {
			h         *host
			said, log string
		}{{old, "unknown authority", "does not accept this host's certificate"}, {plain, "the peer wants TLS", "begins without TLS"}} {
			s := c.h.bind(c.h.open(), 0)
			if _, err := s.SendTo([]byte("x"), netip.AddrPortFrom(a.addr(), 4000)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a refusal", func() error {
				if p := c.h.peer(a); p == nil || !strings.Contains(p.LastError, c.said) || a.logged(c.log) == 0 {
					return errors.New("not refused: " + a.Stderr.Tail())
				}
				return nil
			})
			s.Close()
		}
	})
}

// TestTLSRotated swaps the link to the certificates under traffic, as Kubernetes does with mounted secrets. The daemon
// in its sandbox uses the new ones by itself, and goes on with them if the next are wrong.
func TestTLSRotated(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca, addr, dir := tlstest.NewCA(t), newAddress(t), t.TempDir()
		swap := func(name string, spoil bool) {
			t.Helper()
			err := os.Mkdir(dir+"/"+name, 0o755)
			ca.Write(t, dir+"/"+name, tlstest.IPs(addr.String()))
			if spoil {
				err = errors.Join(err, os.WriteFile(dir+"/"+name+"/ca.pem", nil, 0o600))
			}
			if err = errors.Join(err, os.Symlink(name, dir+"/tmp"), os.Rename(dir+"/tmp", dir+"/..data")); err != nil {
				t.Fatal(err)
			}
		}
		swap("..1", false)
		for _, name := range []string{"cert.pem", "key.pem", "ca.pem"} {
			if err := os.Symlink("..data/"+name, dir+"/"+name); err != nil {
				t.Fatal(err)
			}
		}
		a := newHost(t, withAddress(addr), withArgs("-tls-cert", dir+"/cert.pem", "-tls-key", dir+"/key.pem", "-tls-ca", dir+"/ca.pem"))
		a.expected = []string{"new certificates are wrong"}
		b, _ := newSecured(t, ca)
		l := startLoadAt(t, a, b, 1000, time.Millisecond) // beside traffic the daemon looks each second
		l.progress(20)
		swap("..2", false)
		a.saw(`msg="new certificates"`)
		if err := a.reset(b); err != nil {
			t.Fatal(err)
		}
		l.progress(20)
		swap("..3", true)
		a.saw("new certificates are wrong")
		doctor := startProcess(t, nil, program("rdsctl"), "doctor", "-socket", a.sock)
		if code := doctor.wait(); code != 1 {
			t.Errorf("rdsctl doctor: status %d", code)
		}
		contains(t, "rdsctl doctor", doctor.stdout(), "the new certificates are not used", "holds no certificate in PEM")
		if err := a.reset(b); err != nil {
			t.Fatal(err)
		}
		l.progress(20)
		l.finish()
		l.audit.all(t, l.socks[0], l.socks[1])
	})
}
