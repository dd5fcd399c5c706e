package soft

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// identified is a host whose certificate has the URI own, and that wants the URI far of
// its peer; "": any certificate.
func identified(t testing.TB, ca *tlstest.CA, own, far string) Options {
	cfg := ca.Config(t, tlstest.URI(own))
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(st tls.ConnectionState) error {
		if far == "" || slices.ContainsFunc(st.PeerCertificates[0].URIs, func(u *url.URL) bool { return u.String() == far }) {
			return nil
		}
		return errors.New("another identity")
	}
	return Options{HandshakeRate: 1 << 20, TLS: func(netip.Addr) (*tls.Config, error) { return cfg, nil }}
}

// TestSecureIdentities: certificates with URIs and without addresses.
func TestSecureIdentities(t *testing.T) {
	ca := tlstest.NewCA(t)
	const one, two = "spiffe://test/one", "spiffe://test/two"
	for _, c := range []struct{ a, b Options }{
		{identified(t, ca, one, two), identified(t, ca, two, one)},
		{identified(t, ca, one, ""), identified(t, ca, two, "")},
	} {
		a, b := newHost(t, c.a), newHost(t, c.b)
		link(t, a, b, attrs(), attrs())
	}
	cfg := ca.Config(t, tlstest.URI(one))
	cfg.InsecureSkipVerify = true
	for _, client := range []bool{true, false} {
		if err := (&control{}).secure(&byteStream{Conn: &net.TCPConn{}}, cfg, client); !errors.Is(err, errNoIdentity) {
			t.Errorf("no identity asked for, client %v: %v", client, err)
		}
	}
}
