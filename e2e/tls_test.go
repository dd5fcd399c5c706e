package e2e

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// newSecured starts a host with TLS, whose certificate in dir is from ca.
func newSecured(t *testing.T, ca *tlstest.CA) (h *host, dir string) {
	t.Helper()
	addr := newAddress(t)
	dir = t.TempDir()
	ca.Write(t, dir, tlstest.IPs(addr.String()))
	return newHost(t, withAddress(addr), withArgs("-tls-mode", "on",
		"-tls-cert", dir+"/cert.pem", "-tls-key", dir+"/key.pem", "-tls-ca", dir+"/ca.pem")), dir
}

// Under TLS everything works as without, across resets and new certificates, and
// who has none does not get in.
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

		// New certificates, of a new authority that both trust by now: what is
		// connected stays, what comes has them.
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

		// A host with a certificate of the old authority, and one with none.
		old, _ := newSecured(t, ca)
		plain := newHost(t)
		for _, c := range []struct {
			h         *host
			said, log string
		}{{old, "unknown authority", "TLS: the peer refuses"}, {plain, "the peer wants TLS", "begins without TLS"}} {
			s := c.h.bind(c.h.open(), 0)
			if _, err := s.SendTo([]byte("x"), netip.AddrPortFrom(a.addr(), 4000)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a refusal", func() error {
				if p := c.h.peer(a); p == nil || !strings.Contains(p.LastError, c.said) || a.logged(c.log) == 0 {
					return errors.New("not refused: " + tail(a.log()))
				}
				return nil
			})
			s.Close()
		}
	})
}
