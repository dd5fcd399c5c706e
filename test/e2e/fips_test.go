package e2e

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestFIPS has daemons in Go's FIPS 140-3 mode, where crypto/tls makes the records of TLS and what is not
// approved is refused. They are replaced under load, and talk to a daemon that is not in this mode.
func TestFIPS(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca, mode := tlstest.NewCA(t), withEnv("GODEBUG=fips140=only")
		a, _ := newSecured(t, ca, mode)
		b, _ := newSecured(t, ca, mode)
		other, _ := newSecured(t, ca)
		testUpgrade(t, a, b)
		for _, h := range []*host{b, other} {
			contains(t, "rdsctl ping", a.rdsctl("ping", h.addr().String(), "-c", "1", "-size", "60000"), "1 received")
			if p := h.peer(a); !strings.HasPrefix(p.TLS, "TLS_AES_") {
				t.Errorf("peer %+v", p)
			}
		}
		testUpgrade(t, other, a)
		a.saw("FIPS 140-3 mode")
		if n := other.logged("FIPS 140-3 mode"); n > 0 {
			t.Errorf("a daemon that is not in this mode logs it %d times", n)
		}
	})
}
