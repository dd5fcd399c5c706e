package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestTheWays: each way that docs/architecture.md has from function to function has at most twelve
// steps, and one run of two hosts enters all of them.
func TestTheWays(t *testing.T) { isolated(t, theWays) }

func theWays(t *testing.T) {
	ways := waysOf(t)
	if len(ways) != 4 {
		t.Fatalf("docs/architecture.md has %d ways, want those of a datagram, an operation, a bind and a planned restart", len(ways))
	}
	for _, p := range []string{"rdsd", "rdsctl"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-cover", "-coverpkg=github.com/rdsd/rdsd/...", "-o", program(p+"-covered"), "../../cmd/"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	dir := t.TempDir()
	t.Run("run", func(t *testing.T) { runWays(t, "GOCOVERDIR="+dir) }) // the programs write there when they end
	was := entered(t, dir)
	for _, w := range ways {
		if len(w) > 12 {
			t.Errorf("%d steps from %s to %s, want at most 12", len(w), w[0], w[len(w)-1])
		}
		for _, name := range w {
			pkg, function, _ := strings.Cut(name, ".")
			if !was[folders[pkg]+" "+function] {
				t.Errorf("%s was not entered", name)
			}
		}
	}
}

// waysOf returns the functions of each way.
func waysOf(t *testing.T) (ways [][]string) {
	b, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## The ways\n")
	text, _, _ = strings.Cut(text, "\n## ")
	name := regexp.MustCompile("`([a-z]+\\.[A-Za-z.]+)`")
	for _, part := range strings.Split(text, "\n**")[1:] {
		var way []string
		for _, m := range name.FindAllStringSubmatch(part, -1) {
			way = append(way, m[1])
		}
		ways = append(ways, way)
	}
	return ways
}

// runWays sends datagrams and operations between two hosts, and replaces a daemon.
func runWays(t *testing.T, env string) {
	// The sandbox would keep the daemons from writing there.
	hosts := newHosts(t, 2, withProgram("rdsd-covered"), withEnv(env), withArgs("-sandbox", "off"))
	serve := startProcess(t, []string{env}, program("rdsctl-covered"), "bench", "-serve", "-socket", hosts[1].sock)
	serve.saw("serving")
	for _, mode := range []string{"rate", "rdma-write"} {
		p := startProcess(t, []string{env}, program("rdsctl-covered"), "bench", "-mode", mode, "-d", "200ms", "-warmup", "0s", "-socket", hosts[0].sock,
			hosts[1].addr().String())
		if code := p.wait(); code != 0 {
			t.Errorf("rdsctl bench -mode %s: status %d, %s", mode, code, p.log())
		}
	}
	serve.Signal(syscall.SIGTERM)
	serve.wait()
	hosts[0].beginUpgrade()
	hosts[0].follow()
}

// folders has where the packages of the ways are.
var folders = map[string]string{"rds": "rds", "conn": "conn", "soft": "verbs/soft", "engine": "internal/engine", "daemon": "internal/daemon",
	"ipc": "internal/ipc", "succession": "internal/succession"}

// entered has the functions that were entered, by folder and name.
func entered(t *testing.T, dir string) map[string]bool {
	out, err := exec.Command("go", "tool", "covdata", "func", "-i="+dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			file := strings.TrimPrefix(f[0], "github.com/rdsd/rdsd/")
			in[filepath.Dir(file)+" "+strings.TrimPrefix(f[1], "*")] = f[2] != "0.0%"
		}
	}
	return in
}
