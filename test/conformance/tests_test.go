package conformance

import (
	"os/exec"
	"strings"
	"testing"
)

// goTest proves a statement by tests of the package that decides it: it runs
// them, and they must be there and pass.
func goTest(t *testing.T, pkg string, tests ...string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-count=1", "-short", "-v", "-run", "^("+strings.Join(tests, "|")+")$", pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, tail(string(out)))
		return
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s has no %s, or skips it:\n%s", pkg, name, tail(string(out)))
		}
	}
}

// e106: the engine on a simulated device, whose work requests end when the
// test says so.
func e106(t *testing.T, e *env) { t.Error("not proven") }
