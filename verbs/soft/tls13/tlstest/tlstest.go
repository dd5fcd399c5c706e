// Package tlstest makes certificates for tests.
//
// Not covered by docs/stability.md: any release may change this package.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Cert is what a certificate is made from.
type Cert = x509.Certificate

// CA is a certificate authority.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

// NewCA makes a certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{last: 1}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var err error
	if ca.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return ca
}

// IPs sets the addresses that a certificate is for.
func IPs(addrs ...string) func(*Cert) {
	return func(c *Cert) {
		c.IPAddresses = nil
		for _, a := range addrs {
			c.IPAddresses = append(c.IPAddresses, net.ParseIP(a))
		}
	}
}

// Name makes a certificate be for a DNS name and for no address.
func Name(name string) func(*Cert) {
	return func(c *Cert) { c.IPAddresses, c.DNSNames = nil, []string{name} }
}

// URI makes a certificate be for a URI and for no address.
func URI(uri string) func(*Cert) {
	return func(c *Cert) {
		u, err := url.Parse(uri)
		if err != nil {
			panic(err)
		}
		c.IPAddresses, c.URIs = nil, []*url.URL{u}
	}
}

// ServerOnly makes a certificate unfit for the side that connects.
func ServerOnly(c *Cert) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// Issue makes a key and a certificate for it, both in DER.
func (ca *CA) Issue(t testing.TB, edit ...func(*Cert)) (cert, key []byte) {
	t.Helper()
	ca.last++
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(ca.last), Subject: pkix.Name{CommonName: "host"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(23 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, f := range edit {
		f(tmpl)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &k.PublicKey, ca.key); err != nil {
		t.Fatal(err)
	}
	if key, err = x509.MarshalPKCS8PrivateKey(k); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Config returns a configuration for both ends of connections among the hosts of ca.
func (ca *CA) Config(t testing.TB, edit ...func(*Cert)) *tls.Config {
	t.Helper()
	der, key := ca.Issue(t, edit...)
	k, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}}, RootCAs: pool, ClientCAs: pool}
}

// Write issues a certificate into dir: cert.pem, key.pem and ca.pem, replacing
// what is there.
func (ca *CA) Write(t testing.TB, dir string, edit ...func(*Cert)) {
	t.Helper()
	der, key := ca.Issue(t, edit...)
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{{"cert.pem", "CERTIFICATE", der}, {"key.pem", "PRIVATE KEY", key}, {"ca.pem", "CERTIFICATE", ca.cert.Raw}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
