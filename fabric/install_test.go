package fabric

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

// TestInstalled: libfabric finds what make install has put into the folder for providers, and the manual page has the provider's name.
func TestInstalled(t *testing.T) {
	programs(t)
	dir := t.TempDir()
	finish(t, exec.Command("make", "-s", "OUT="+build(t, ""), "CFLAGS=-O1 -g1", "DESTDIR="+dir, "PREFIX=/usr", "FI_DIR=/usr/lib/libfabric", "install"))
	d := rdstest.StartDaemons(t, 1)[0]
	if out := finish(t, command(filepath.Join(dir, "usr/lib/libfabric"), d, "fi_info", "-p", "rdsd")); !strings.Contains(out, "domain: "+d.Addr().String()) {
		t.Errorf("fi_info does not name the daemon's address:\n%s", out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "usr/share/man/man7/fi_rdsd.7"))
	if err != nil || !strings.HasPrefix(string(page), ".TH FI_RDSD 7") {
		t.Errorf("the manual page begins with %.20q, %v", page, err)
	}
}

// TestAnotherMachine: without a library of libfabric for it, the provider is built for another machine all the same, and names libfabric's
// functions with the versions that the native one names.
func TestAnotherMachine(t *testing.T) {
	native := build(t, "")
	const cc, ar = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-ar"
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("no " + cc + " (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)")
	}
	if out, _ := exec.Command(cc, "-dumpmachine").Output(); string(out) == dumped(t) {
		t.Skip("this is such a machine")
	}
	dir := t.TempDir()
	cmd := exec.Command("../scripts/fabric.sh", dir)
	cmd.Env = append(os.Environ(), "CC="+cc, "AR="+ar, "CFLAGS=-O1 -g1")
	finish(t, cmd)
	want := needed(t, filepath.Join(native, "librdsd-fi.so"))
	if got := needed(t, filepath.Join(dir, "librdsd-fi.so")); got != want || !strings.Contains(got, "fi_log@FABRIC_1.0") {
		t.Errorf("it needs\n%s\nthe native one\n%s", got, want)
	}
}

// dumped returns what the compiler of this machine says about the machine.
func dumped(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("cc", "-dumpmachine").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// needed returns the functions of libfabric that a library needs, with their versions.
func needed(t *testing.T, library string) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(finish(t, exec.Command("nm", "-D", "--undefined-only", "--with-symbol-versions", library))) {
		if f := strings.Fields(line); strings.HasPrefix(f[len(f)-1], "fi_") {
			names = append(names, f[len(f)-1])
		}
	}
	return strings.Join(names, "\n")
}
