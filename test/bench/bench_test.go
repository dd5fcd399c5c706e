package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// TestMain also runs the workers, which are this test's program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == worker.Arg {
		os.Exit(worker.Main(os.Args[2:], roles))
	}
	os.Exit(m.Run())
}

func buildDaemon(t *testing.T) string {
	t.Helper()
	rdsd := filepath.Join(t.TempDir(), "rdsd")
	if out, err := exec.Command("go", "-C", "../..", "build", "-buildvcs=false", "-o", rdsd, "./cmd/rdsd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return rdsd
}

// TestCases runs one case of each kind for a short time, with real daemons. With RDSD_BENCH_ALL
// it runs every case. Every case must end, measure something, and leave no file.
func TestCases(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	rdsd := buildDaemon(t)
	kinds := `^(model|rds|tcp)-(rtt|rate)$|^(embedded-(rtt|rate)|model-local-rtt|rds-rate-1|calls-(rds|model)|udp-rate|seq-rtt|model-rate-64k|model-direct-rtt|model-spin-rate|model-bulk-1m|rdma-read-1m|rdma-write-64|memcpy-1m|local-rate|fair-reads|engines-apart|fan-in-4|fan-out-4|idle-(peers|sockets)-rtt-10|busy-session-rds|tls-rtt|verbs-send)$`
	if os.Getenv("RDSD_BENCH_ALL") != "" {
		kinds = "."
	}
	var out, log bytes.Buffer
	plots := t.TempDir()
	args := []string{"-n", "1", "-d", "20ms", "-longest", "100ms", "-rdsd", rdsd, "-peers", "/nonexistent", "-o", "json", "-run", kinds, "-plots", plots}
	o, err := parse(args, &log)
	if err != nil {
		t.Fatal(err)
	}
	if err := benchMain(context.Background(), args, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	if want := len(o.selected()); len(rep.Cases) != want || want < 20 {
		t.Errorf("%d cases, want %d", len(rep.Cases), want)
	}
	for _, c := range rep.Cases {
		if len(c.Main.Runs) == 0 {
			if !strings.Contains(strings.Join(rep.Notes, "\n"), c.Name+": ") {
				t.Errorf("%s: neither measured nor noted", c.Name)
			}
			continue
		}
		if c.Main.Median <= 0 || c.CPU.Median <= 0 {
			t.Errorf("%s: %v, CPU %v", c.Name, c.Main, c.CPU)
		}
	}
	if svg, err := os.ReadFile(filepath.Join(plots, "rate-sockets.svg")); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) {
		t.Errorf("plot: %v %.40q", err, svg)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestArguments(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-n 0", "-n 0 is not from"},
		{"-d 1ms", "-d 1ms is not from"},
		{"-o xml", "none of benchfmt, history, json, summary, table"},
		{"-history h.csv", "-history needs -plots"},
		{"-read /nonexistent", "no such file"},
		{"-run (", "-run: "},
		{"-run nothing", "no case of these groups matches"},
		{"-groups rtt,most", `"most" is none of rtt, rate`},
		{"now", `"now" is not a flag`},
		{"-rdsd /nonexistent", "make build"},
	} {
		err := benchMain(context.Background(), strings.Fields(tc.args), &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", tc.args, err, tc.want)
		}
	}
}

// TestTables checks that the tables of cases, goals and roles agree.
func TestTables(t *testing.T) {
	names := map[string]testCase{}
	for _, c := range allCases() {
		if _, twice := names[c.name]; twice {
			t.Errorf("%s twice", c.name)
		}
		names[c.name] = c
	}
	for _, c := range names {
		if c.topo != peerProgram && (roles[c.server] == nil || roles[c.client] == nil) {
			t.Errorf("%s: no role %q or %q", c.name, c.server, c.client)
		}
		if _, ok := names[c.peer]; c.peer != "" && !ok {
			t.Errorf("%s: no peer %q", c.name, c.peer)
		}
	}
	for _, g := range goals() {
		if _, ok := names[g.of.name]; !ok {
			t.Errorf("%s: no case %q", g.measure, g.of.name)
		}
		if g.over == nil {
			continue
		}
		if _, ok := names[g.over.name]; !ok {
			t.Errorf("%s: no case %q", g.measure, g.over.name)
		}
		if names[g.of.name].metric != names[g.over.name].metric && g.of.figure == g.over.figure {
			t.Errorf("%s: a ratio of different things: %s and %s", g.measure, g.of.name, g.over.name)
		}
	}
}

// TestWorkerFails has a worker fail. The error must name it and quote its output. The bench must
// notice the end of the process, and not wait for startup to pass.
func TestWorkerFails(t *testing.T) {
	o, err := parse([]string{"-d", "10ms", "-n", "3"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{options: o, dir: t.TempDir(), stderr: &bytes.Buffer{}}
	rep, err := b.all(context.Background(), []testCase{{name: "x", server: "no-such", client: "net-ping", size: 1}})
	if err == nil || !strings.Contains(err.Error(), `no worker "no-such"`) || !strings.Contains(err.Error(), ": ended: ") || len(rep.Notes) != 1 {
		t.Errorf("%v", err)
	}
}

// TestStaleDirectories checks that the next bench removes the directory of a bench that was
// killed, and leaves that of a running one.
func TestStaleDirectories(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	living, err := newTempDir()
	if err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(os.TempDir(), dirPrefix+"1")
	for _, dir := range []string{stale, living.path} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next, err := newTempDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("stale: %v", err)
	}
	if _, err := os.Stat(living.path); err != nil {
		t.Errorf("living: %v", err)
	}
	living.close()
	next.close()
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
