package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/internal/test/loopback"
)

// runsMain makes the test binary be rdsd itself.
const runsMain = "RDSD_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runsMain) != "" {
		if os.Getenv("LISTEN_FDS") != "" { // systemd's fork sets its own pid
			os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
		}
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a running rdsd.
type process struct {
	*child.Process
	t    *testing.T
	seen int // how much of its log waitFor has seen
}

// processTimeout is far above what a start or end takes.
const processTimeout = 2 * time.Minute

func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, nil, args...)
}

// startWith starts a daemon with additions to the environment and with open files.
func startWith(t *testing.T, env []string, files []*os.File, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = child.Env(append([]string{runsMain + "=1"}, env...)...)
	cmd.ExtraFiles = files
	p, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("rdsd %s:\n%s", strings.Join(args, " "), &p.Stderr)
		}
	})
	return &process{Process: p, t: t}
}

func (p *process) output() string { return p.Stderr.String() }

func (p *process) waitReady() *process {
	p.t.Helper()
	if !p.Until(processTimeout, func() bool { return p.Stderr.Has("msg=serving") }) {
		p.t.Fatalf("rdsd does not serve (it runs: %v):\n%s", p.Alive(), p.output())
	}
	return p
}

// wait waits for the end and returns the exit status.
func (p *process) wait() int {
	p.t.Helper()
	if !p.Wait(processTimeout) {
		p.t.Fatalf("rdsd does not end:\n%s", p.output())
	}
	return p.Code()
}

// address is an address that no other test uses.
func address(t *testing.T) string {
	t.Helper()
	net, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	return net.At(1).String()
}

// socketDir is a directory whose paths are short enough for a Unix socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := socketDir(t)
		p := start(t, "-socket", dir+"/s", "-listen", address(t)).waitReady()
		if fi, err := os.Stat(dir + "/s"); err != nil || fi.Mode().Perm() != 0o660 {
			t.Errorf("control socket: %v, %v", fi, err)
		}
		p.Signal(s)
		if code := p.wait(); code != exitOK {
			t.Errorf("%v: status %d", s, code)
		}
		expectEmpty(t, dir)
	}
}

// Configurations that must not start. The message has a cause and a cure.
func TestStartErrors(t *testing.T) {
	dir := socketDir(t)
	live := address(t)
	start(t, "-socket", dir+"/live", "-listen", live).waitReady()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	notASocket := dir + "/file"
	if err := os.WriteFile(notASocket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "rdsd.toml")
	if err := os.WriteFile(config, []byte("[peers]\nalow = []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name  string
		args  []string
		code  int
		cause []string
		cure  string
	}{
		{"unknown key", []string{"-config", config}, exitUsage, []string{config + `:2:1: unknown key "peers.alow", meant is perhaps "peers.allow"; allowed here: allow`}, ""},
		{"not loopback", []string{"-listen", "192.0.2.1"}, exitUsage, []string{"192.0.2.1 is not a loopback address and peers.allow is empty; set peers.allow"}, ""},
		{"live daemon", []string{"-listen", address(t), "-socket", dir + "/live"}, exitFailed, []string{dir + "/live: a daemon (pid ", "address already in use"}, "stop it, replace it with -take-over, or choose another path with --socket"},
		{"statistics in use", []string{"-listen", address(t), "-stats", dir + "/live.stats"}, exitFailed, []string{dir + "/live.stats: in use by another daemon (pid "}, "-stats"},
		{"address in use", []string{"-listen", live}, exitFailed, []string{live + ":", "address already in use"}, "-port"},
		{"no directory", []string{"-listen", address(t), "-socket", dir + "/no/s"}, exitFailed, []string{dir + "/no", "no such file or directory"}, "create it, or choose another path with --socket"},
		{"not a socket", []string{"-listen", address(t), "-socket", notASocket}, exitFailed, []string{notASocket + ": there is a file that is not a socket"}, "move it"},
		{"metrics in use", []string{"-listen", address(t), "-metrics-listen", taken.Addr().String()}, exitFailed,
			[]string{"metrics.listen: ", taken.Addr().String(), "address already in use"}, "-metrics-listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The case's own -socket follows and overrides this one.
			p := start(t, append([]string{"-socket", dir + "/other", "-log-level", "error"}, tc.args...)...)
			if code := p.wait(); code != tc.code {
				t.Errorf("status %d, want %d", code, tc.code)
			}
			lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(p.output(), "\n"), "\n"),
				func(l string) bool { return strings.HasPrefix(l, " ") }) // the place in the file
			for _, want := range tc.cause {
				if !strings.HasPrefix(lines[0], "rdsd: ") || !strings.Contains(lines[0], want) {
					t.Errorf("cause %q, want %q in it", lines[0], want)
				}
			}
			// The cure follows the cause, on the same line or the next.
			if last := lines[len(lines)-1]; len(lines) > 2 || !strings.Contains(last, tc.cure) {
				t.Errorf("cure %q, want %q in it", last, tc.cure)
			}
		})
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("a daemon that did not start left files: before %v, after %v (%v)", before, after, err)
	}
	if b, err := os.ReadFile(notASocket); string(b) != "precious" {
		t.Errorf("somebody's file was touched: %q, %v", b, err)
	}
}

// A daemon that was killed leaves its files. The next daemon replaces them.
func TestStartAfterKill(t *testing.T) {
	dir := socketDir(t)
	args := []string{"-socket", dir + "/s", "-listen", address(t)}
	p := start(t, args...).waitReady()
	p.Signal(syscall.SIGKILL)
	p.wait()
	if _, err := os.Stat(dir + "/s"); err != nil {
		t.Fatalf("nothing was left to start over: %v", err)
	}
	p = start(t, args...).waitReady()
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
	expectEmpty(t, dir)
}

func TestMetrics(t *testing.T) {
	dir, addr := socketDir(t), address(t)
	p := start(t, "-socket", dir+"/s", "-listen", addr, "-metrics-listen", addr+":9000").waitReady()
	resp, err := http.Get("http://" + addr + ":9000/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	for _, want := range []string{"\nrdsd_peers 0\n", "\nrdsd_build_info{", `rdsd_collector_errors_total{collector="peers"} 0`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
	if _, err := net.Dial("tcp", addr+":9000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("metrics after the end: %v", err)
	}
	expectEmpty(t, dir)
}

// TestHangup: SIGHUP reads the file again and logs the result. A bad file changes nothing.
func TestHangup(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "rdsd.toml")
	write := func(doc string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listen := fmt.Sprintf("listen = [%q]\n", address(t))
	write(listen)
	p := start(t, "-config", file, "-socket", filepath.Join(dir, "s")).waitReady()
	for _, tc := range []struct{ doc, want string }{
		{listen + "port = 1\nspin = \"1us\"\nlog.level = \"debug\"\n", `msg=reloaded applied="spin log.level" restart=port`},
		{"prot = 1\n", `nothing changed" err="configuration: ` + file + `:1:1: unknown key`},
		{listen, `msg=reloaded applied="spin log.level" restart=""`},
	} {
		write(tc.doc)
		p.Signal(syscall.SIGHUP)
		p.waitFor(tc.want)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("status %d", code)
	}
}

// waitFor waits for a text in the part of the log that earlier calls have not seen.
func (p *process) waitFor(text string) {
	p.t.Helper()
	said := func() bool {
		log := p.output()
		_, rest, ok := strings.Cut(log[p.seen:], text)
		if ok {
			p.seen = len(log) - len(rest)
		}
		return ok
	}
	if !p.Until(processTimeout, said) {
		p.t.Fatalf("does not say %s", text)
	}
}
