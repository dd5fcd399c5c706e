package tidy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests of the budget in docs/dependencies.md.
const (
	maxModules = 20
	maxBytes   = 13 << 20
)

// modules are the modules of other projects in the output of go list, with versions.
func modules(t *testing.T, args ...string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all[path] = version
		}
	}
	return all
}

// dependencyRow is a row of a table of docs/dependencies.md.
var dependencyRow = regexp.MustCompile(`(?m)^\| ([a-z]\S*\.\S+) \| (v\S+) \| (?:([^|]*) \| )?([^|]+) \|$`)

func TestDependencies(t *testing.T) {
	b, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	main, others, ok := strings.Cut(string(b), "`test/bench/peers`")
	if !ok {
		t.Fatal("docs/dependencies.md: no part about test/bench/peers")
	}
	want := map[string]string{} // path to version and places
	linked := map[string]bool{}
	places := map[string][]string{}
	versions := map[string]string{}
	for place, args := range map[string][]string{"rdsd": {"./cmd/rdsd"}, "rdsctl": {"./cmd/rdsctl"}, "rds": {"./rds"}, "release": {"./internal/sbom"}} {
		all := modules(t, args...)
		for path, version := range all {
			places[path] = append(places[path], place)
			versions[path], linked[path] = version, true
		}
		switch {
		case place == "rdsd" && len(all) > maxModules:
			t.Errorf("rdsd links %d modules, the budget is %d", len(all), maxModules)
		case place == "rds" && !slices.Equal(slices.Collect(maps.Keys(all)), []string{"golang.org/x/sys"}):
			t.Errorf("package rds needs %v, the budget is golang.org/x/sys", all)
		}
	}
	for path, version := range modules(t, "-test", "./...") {
		if versions[path] = version; !linked[path] {
			places[path] = []string{"tests"}
		}
	}
	order := []string{"rdsd", "rdsctl", "rds", "release", "tests"}
	for path, p := range places {
		slices.SortFunc(p, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
		want[path] = versions[path] + " in " + strings.Join(p, ", ")
	}
	got := map[string]string{}
	for _, m := range dependencyRow.FindAllStringSubmatch(main, -1) {
		got[m[1]] = m[2] + " in " + m[3]
	}
	compareRows(t, got, want)

	got, want = map[string]string{}, map[string]string{}
	for _, m := range dependencyRow.FindAllStringSubmatch(others, -1) {
		got[m[1]] = m[2] + " in " + m[3]
	}
	for place, dir := range map[string]string{"peers": "test/bench/peers", "rpcprom": "contrib/rpcprom", "rpcotel": "contrib/rpcotel", "kubernetes": "contrib/kubernetes", "wycheproof": "test/wycheproof"} {
		for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(readDoc(t, dir+"/go.mod"), -1) {
			if !strings.HasPrefix(m[1], module) {
				want[m[1]] = m[2] + " in " + place
			}
		}
	}
	compareRows(t, got, want)
}

func compareRows(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 {
		t.Error("nothing to compare docs/dependencies.md with")
	}
	for path, w := range want {
		if got[path] != w {
			t.Errorf("docs/dependencies.md: %s: %q, it is %q", path, got[path], w)
		}
	}
	for path := range got {
		if want[path] == "" {
			t.Errorf("docs/dependencies.md: %s is linked into nothing", path)
		}
	}
}

// TestSize: the size of rdsd as make packages and the Containerfile build it.
func TestSize(t *testing.T) {
	out := filepath.Join(t.TempDir(), "rdsd")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "nethttpomithttp2", "-ldflags", "-s -w", "-o", out, "./cmd/rdsd")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("rdsd has %d bytes stripped, the budget is %d", info.Size(), maxBytes)
	if info.Size() > maxBytes {
		t.Error(said)
	}
	t.Log(said)
}
