// Package librds tests the C library beside it: it builds the library with the system's C
// compiler and runs programs that use it against daemons in the test's process.
package librds

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdsd/rdsd/internal/test/cbuild"
)

var library = cbuild.Library{Name: "librds", Targets: []string{"driver", "all"}}

var python cbuild.Python

func TestMain(m *testing.M) { library.Main(m, python.Remove) }

// builtEnv names the environment variable with the directory of a build that another process
// has made and removes.
const builtEnv = "LIBRDS_TEST_BUILT"

// built is where the library and its test programs are.
func built(t testing.TB, sanitize string) string {
	t.Helper()
	if dir := os.Getenv(builtEnv); dir != "" {
		return dir
	}
	return library.Build(t, sanitize)
}

// program is a program of tests/ as a command. A sanitizer that finds something makes it
// fail.
func program(t *testing.T, sanitize, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(built(t, sanitize), name), args...)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1",
		"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
	return cmd
}
