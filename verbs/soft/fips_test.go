package soft

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestFIPS runs the tests of TLS in Go's FIPS 140-3 mode, which a process cannot change. Connections of the
// soft provider have TLS there, made by crypto/tls, and what is not approved is refused.
func TestFIPS(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("the mode is on: the tests run by themselves")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecure", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	if n := strings.Count(string(out), "\n--- PASS: TestSecure"); n < 10 {
		t.Errorf("%d tests pass in the mode:\n%s", n, out)
	}
}
