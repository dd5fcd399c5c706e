package tls13_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// TestOpenPlace: whoever changes the memory that a record is opened into changes its content there and nothing else:
// the connection of all goes on, and what a record is does not depend on that memory.
func TestOpenPlace(t *testing.T) {
	needsOwn(t)
	secret := func(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }
	session := func(client bool) *tls13.Session {
		s, err := tls13.NewSession(tls.TLS_AES_128_GCM_SHA256, client, secret("client"), secret("server"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	from, to := session(true), session(false)
	content := bytes.Repeat([]byte("payload "), 1000)
	n := len(content)
	place := make([]byte, n+1)
	for name, c := range map[string]struct {
		change func(b []byte)
		body   []byte
	}{
		"not at all":        {nil, content},
		"all to padding":    {func(b []byte) { clear(b) }, content},
		"to an alert":       {func(b []byte) { b[n] = 21 }, content},
		"to a handshake":    {func(b []byte) { b[n] = 22 }, content},
		"to no type":        {func(b []byte) { b[n] = 99 }, content},
		"to a shorter one":  {func(b []byte) { clear(b[n/2:]); b[n/2-1] = 23 }, content},
		"padded, to itself": {func([]byte) {}, append(bytes.Clone(content[:n/2]), append([]byte{23}, make([]byte, n-n/2-1)...)...)},
	} {
		padded := len(c.body) == n && c.body[n-1] == 0
		typ := byte(23)
		want := content
		if padded { // SealRaw ends it in its type: none, so that the padding goes on
			typ, want = 0, content[:n/2]
		}
		rec := tls13.SealRaw(from, tls13.Raw{Type: typ, Body: c.body})
		tls13.Meddle(to, place, c.change)
		if got, err := to.In.OpenPlace(place, rec); err != nil || !bytes.Equal(place[:got], want) {
			t.Errorf("changed %s: %d bytes, %v", name, got, err)
		}
	}
	rec := tls13.SealRaw(from, tls13.Raw{Type: 23, Body: content})
	rec[len(rec)/2] ^= 1
	var broken *tls13.Error
	if _, err := to.In.OpenPlace(place, rec); !errors.As(err, &broken) {
		t.Errorf("a record that was changed on its way: %v", err)
	}
}
