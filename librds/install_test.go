package librds

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestInstalled: a program builds against what make install has installed, as pkg-config
// says, in C and, where there is a compiler, in C++. It runs with the shared library.
func TestInstalled(t *testing.T) {
	built(t, "") // or skipped
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("no pkg-config")
	}
	dir := t.TempDir()
	run := func(env, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(dir, "lib/pkgconfig"), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("", "make", "-s", "OUT="+built(t, ""), "CFLAGS=-O1 -g1", "PREFIX="+dir, "install")
	src := filepath.Join(dir, "main.c")
	err := os.WriteFile(src, []byte("#include <rds/rds.h>\nint main(void)\n{\n\tstruct rds_addr a;\n\treturn rds_addr_parse(\"10.0.0.1:1\", &a);\n}\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for _, cc := range []string{"cc", "c++"} {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		run("", "sh", "-c", cc+" -Wall -Werror -o "+dir+"/main "+src+" $(pkg-config --cflags --libs rds)")
		run("LD_LIBRARY_PATH="+filepath.Join(dir, "lib"), filepath.Join(dir, "main"))
	}
}
