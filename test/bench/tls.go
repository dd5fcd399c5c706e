package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// tlsCases measure a message and an RDMA write with TLS, and the same without.
func tlsCases() (cs []testCase) {
	bulk := bulkCases()
	write := bulk[slices.IndexFunc(bulk, func(c testCase) bool { return c.name == "rdma-write-1m" })]
	for _, c := range []struct {
		name string
		testCase
	}{{"rtt", trip("rds", 64)}, {"rate", flow("rds", 64)}, {"rate-4k", flow("rds", 4<<10)}, {"write", write}} {
		none := "tls-none-" + c.name
		cs = append(cs, c.with("tls-"+c.name, c.doc+", TLS", func(c *testCase) { c.tls, c.peer = true, none }),
			c.with(none, c.doc+", beside it", func(c *testCase) { c.peer = "" }))
	}
	return cs
}

// tlsFiles writes a self-signed certificate for addrs, and its key, to dir. It returns the lines
// for a daemon's configuration.
func tlsFiles(dir string, addrs []string) (set []string, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, a := range addrs {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.ParseIP(a))
	}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, err
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return []string{"tls.mode", "on", "tls.cert", certFile, "tls.key", keyFile, "tls.ca", certFile}, nil
}
