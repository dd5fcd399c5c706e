package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/config"
)

// credentials are what the files of tls.cert, tls.key and tls.ca hold. They do not change.
// A reload replaces them for the handshakes that begin after it.
type credentials struct {
	cfg     *tls.Config
	subject string
	expires time.Time // when the first certificate of the chain expires
	raw     []byte    // the contents of the three files
	chain   error     // why our own authorities do not trust the certificate
}

// loadTLS reads the files that c names. It returns nil if c names none. Errors name the key
// and the cure.
func loadTLS(c *config.Config) (*credentials, error) {
	if c.TLS.Cert == "" {
		return nil, nil
	}
	var raw [3][]byte
	for i, f := range []struct{ key, path string }{{"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}, {"tls.ca", c.TLS.CA}} {
		var err error
		if raw[i], err = os.ReadFile(f.path); err != nil {
			if errors.Is(err, os.ErrPermission) {
				err = fmt.Errorf("%w; the daemon's user must be able to read it (a folder new since the start: restart)", err)
			}
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
	}
	pair, err := tls.X509KeyPair(raw[0], raw[1])
	if err != nil {
		return nil, fmt.Errorf("tls.cert, tls.key: %s, %s: %w", c.TLS.Cert, c.TLS.Key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw[2]) {
		return nil, fmt.Errorf("tls.ca: %s holds no certificate in PEM", c.TLS.CA)
	}
	leaf := pair.Leaf
	if err := checkLeaf(c, leaf); err != nil {
		return nil, err
	}
	cr := &credentials{subject: leaf.Subject.String(), expires: leaf.NotAfter, raw: bytes.Join(raw[:], []byte{0}),
		cfg: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool}}
	if cr.subject == "" {
		cr.subject = "serial " + leaf.SerialNumber.String()
	}
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %s: %w", c.TLS.Cert, err)
		}
		between.AddCert(x)
		if x.NotAfter.Before(cr.expires) {
			cr.expires = x.NotAfter
		}
	}
	_, cr.chain = leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: leaf.NotBefore,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return cr, nil
}

// checkLeaf returns an error if peers would refuse the daemon's certificate, leaf: it has to
// name the addresses of listen, and to be good for both ends of a connection.
func checkLeaf(c *config.Config, leaf *x509.Certificate) error {
	for _, a := range c.Listen {
		if c.Secured() && (!a.IsLoopback() || c.Peer(a) == config.Permitted) { // else nobody connects to it
			if err := c.TLS.IsFor(leaf, a); err != nil {
				return fmt.Errorf("tls.cert: %s is not for the address %v of listen: %w; make one that has it as an IP SAN, or its name as a DNS SAN or URI SAN and in tls.names", c.TLS.Cert, a, err)
			}
		}
	}
	for _, u := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageServerAuth, "serverAuth"}, {x509.ExtKeyUsageClientAuth, "clientAuth"}} {
		if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 &&
			!slices.Contains(leaf.ExtKeyUsage, u.usage) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
			return fmt.Errorf("tls.cert: %s is not good for %s; a host connects and is connected to: make one with extendedKeyUsage serverAuth and clientAuth", c.TLS.Cert, u.name)
		}
	}
	return nil
}

// same reports whether c and o were read from files with the same contents.
func (c *credentials) same(o *credentials) bool {
	if c == nil || o == nil {
		return c == o
	}
	return bytes.Equal(c.raw, o.raw)
}

// String names the certificate, for logs and for rdsctl.
func (c *credentials) String() string {
	if c == nil {
		return ""
	}
	leaf := c.cfg.Certificates[0].Leaf
	return fmt.Sprintf("%s, serial %v, until %s", c.subject, leaf.SerialNumber, leaf.NotAfter.UTC().Format(time.DateTime))
}

// tlsFor is what the soft provider uses for connections with peer; nil: TCP without TLS.
func (s *settings) tlsFor(peer netip.Addr) (*tls.Config, error) {
	c := s.config()
	if !c.Secured() {
		return nil, nil // the engine refuses it if it is not allowed
	}
	if err := s.peerAllowed(peer); err != nil {
		return nil, err
	}
	cr := s.credentials.Load()
	if cr == nil { // not reached: Finish wants a certificate
		return nil, errNoCertificate
	}
	name, ok := c.TLS.NameOf(peer)
	if !ok {
		return cr.cfg, nil
	}
	cfg := cr.cfg.Clone()
	if name.IsDNS() {
		cfg.ServerName = name.Name
		return cfg, nil
	}
	cfg.InsecureSkipVerify = true // crypto/tls knows no URIs; the soft provider checks the chain
	cfg.VerifyConnection = func(st tls.ConnectionState) error { return c.TLS.IsFor(st.PeerCertificates[0], peer) }
	return cfg, nil
}

// metricsTLS is how metrics are served beyond loopback: with the daemon's certificate of
// this moment, to clients that have a certificate of tls.ca. It is nil for HTTP.
func (s *settings) metricsTLS() *tls.Config {
	if !s.config().SecureMetrics() {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cr := s.credentials.Load()
		if cr == nil {
			return nil, errNoCertificate
		}
		cfg := cr.cfg.Clone()
		cfg.MinVersion, cfg.ClientAuth, cfg.NextProtos = tls.VersionTLS13, tls.RequireAndVerifyClientCert, []string{"http/1.1"}
		return cfg, nil
	}}
}

var errNoCertificate = errors.New("no certificate")

// expiryWarning is how long before a certificate expires tlsWarnings warns of it.
const expiryWarning = 14 * 24 * time.Hour

// tlsWarnings are the warnings about TLS for the status.
func (s *settings) tlsWarnings(now time.Time) (out []string) {
	c := s.config()
	if c.TLS.Mode == config.TLSOff {
		if c.TLS.Warn == config.WarnOff {
			return nil
		}
		for _, a := range c.Listen {
			if !a.IsLoopback() {
				out = append(out, fmt.Sprintf("connections on %v are neither encrypted nor authenticated (tls.mode = off)", a))
			}
		}
		return out
	}
	cr := s.credentials.Load()
	if cr == nil {
		return nil
	}
	from := cr.cfg.Certificates[0].Leaf.NotBefore
	switch left := cr.expires.Sub(now); {
	case left <= 0:
		out = append(out, fmt.Sprintf("the certificate expired at %s: new connections to peers fail; replace it", cr.expires.UTC().Format(time.DateTime)))
	case now.Before(from):
		out = append(out, fmt.Sprintf("the certificate is not valid before %s: connections to peers fail until then", from.UTC().Format(time.DateTime)))
	case left < expiryWarning:
		out = append(out, fmt.Sprintf("the certificate expires in %d days, at %s; replace it", int(left/(24*time.Hour)), cr.expires.UTC().Format(time.DateTime)))
	}
	if cr.chain != nil {
		out = append(out, "tls.ca does not trust tls.cert; a peer with the same authorities will not, either: "+cr.chain.Error())
	}
	return out
}

// foldersOf are the folders that have to be readable to read the files at paths later: of the
// files, and of the files that they are links to. An empty path has none.
func foldersOf(paths ...string) (out []string) {
	for _, p := range paths {
		if p == "" {
			continue
		}
		out = append(out, filepath.Dir(p))
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out = append(out, filepath.Dir(real))
		}
	}
	return out
}
