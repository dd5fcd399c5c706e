// Package wycheproof has the vectors of Project Wycheproof judge the ciphers of rdsd's TLS records. It is
// a module of its own, because the vectors are large and want a newer Go than rdsd.
package wycheproof

import (
	"bytes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"testing"

	"github.com/c2sp/wycheproof"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// vectors are a file of them.
type vectors struct {
	TestGroups []struct {
		IVSize, KeySize, TagSize int // bits
		Tests                    []vector
	}
}

type vector struct {
	TcID                               int
	Key, IV, AAD, Msg, CT, Tag, Result string
}

// TestRecords: each vector that has the sizes of a TLS record's cipher is sealed and opened with the
// cipher that records have, in place as records are made, and into other memory as they are opened. A wrong tag is
// refused.
func TestRecords(t *testing.T) {
	for _, c := range []struct {
		file  string
		suite uint16
		bits  int // of the key
		least int // vectors
	}{
		{"aes_gcm_test.json", tls.TLS_AES_128_GCM_SHA256, 128, 60},
		{"aes_gcm_test.json", tls.TLS_AES_256_GCM_SHA384, 256, 60},
		{"chacha20_poly1305_test.json", tls.TLS_CHACHA20_POLY1305_SHA256, 256, 200},
	} {
		t.Run(tls.CipherSuiteName(c.suite), func(t *testing.T) {
			b, err := fs.ReadFile(wycheproof.TestVectors, c.file)
			if err != nil {
				t.Fatal(err)
			}
			var all vectors
			if err := json.Unmarshal(b, &all); err != nil {
				t.Fatal(err)
			}
			valid, refused := 0, 0
			for _, g := range all.TestGroups {
				if g.IVSize != 96 || g.TagSize != 128 || g.KeySize != c.bits {
					continue
				}
				for _, v := range g.Tests {
					if v.Result == "valid" {
						valid++
					} else {
						refused++
					}
					judge(t, c.suite, &v)
				}
			}
			t.Logf("%d vectors are right, %d are refused", valid, refused)
			if valid+refused < c.least || refused < 10 {
				t.Errorf("%d vectors are right, %d are refused: too few, as if they were not found", valid, refused)
			}
		})
	}
}

func judge(t *testing.T, suite uint16, v *vector) {
	t.Helper()
	aead, err := tls13.AEAD(suite, of(t, v.Key))
	if err != nil {
		t.Fatal(err)
	}
	nonce, aad, msg, sealed := of(t, v.IV), of(t, v.AAD), of(t, v.Msg), append(of(t, v.CT), of(t, v.Tag)...)
	for _, inPlace := range []bool{true, false} {
		got, err := open(aead, nonce, aad, sealed, inPlace)
		if v.Result == "valid" != (err == nil) || !bytes.Equal(got, msg) && err == nil || err != nil && len(got) > 0 {
			t.Errorf("vector %d is %s, in place %v: opened as %x, %v", v.TcID, v.Result, inPlace, got, err)
		}
	}
	if v.Result != "valid" {
		return
	}
	b := append(make([]byte, 0, len(sealed)), msg...)
	if got := aead.Seal(b[:0], nonce, b, aad); !bytes.Equal(got, sealed) {
		t.Errorf("vector %d is sealed as %x, want %x", v.TcID, got, sealed)
	}
}

func open(aead cipher.AEAD, nonce, aad, sealed []byte, inPlace bool) ([]byte, error) {
	if inPlace {
		b := bytes.Clone(sealed)
		return aead.Open(b[:0], nonce, b, aad)
	}
	return aead.Open(make([]byte, 0, len(sealed)), nonce, sealed, aad)
}

func of(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
