package librds

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

// example is a command that runs an example of examples/c with the daemon d.
func example(t *testing.T, d *rdstest.Daemon, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{"-bind", d.Addr().String() + ":0"}, args...)
	prog := filepath.Join(dir, name)
	cmd := exec.Command(prog, args...)
	switch _, err := os.Stat(prog); {
	case strings.HasSuffix(name, ".py"):
		cmd = command(t, append([]string{filepath.Join("../examples/python", name)}, args...)...)
	case strings.HasSuffix(name, ".rs") && err != nil:
		if _, err := exec.LookPath("rustc"); err != nil {
			t.Skip("examples/rust is NOT tested: it needs rustc: apt-get install -y --no-install-recommends rustc")
		}
		out, err := exec.Command("rustc", "-D", "warnings", "-L", built(t, ""), "-l", "static=rds", "-o", prog, filepath.Join("../examples/rust", name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	case err != nil:
		out, err := exec.Command("cc", "-std=c11", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-o", prog,
			filepath.Join("../examples/c", name+".c"), filepath.Join(built(t, ""), "librds.a")).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	cmd.Env = append(cmd.Environ(), "RDSD_SOCKET="+d.Socket())
	return cmd
}

// TestExamples: the programs of examples/c and the echoes of examples/python and examples/rust, between two daemons.
func TestExamples(t *testing.T) {
	built(t, "") // or skipped
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	content := strings.Repeat("served by RDMA\n", 50_000)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	ds := rdstest.StartDaemons(t, 2)
	for _, c := range []struct {
		server, client string
		serverArgs     []string
		args           []string
		want           string
	}{
		{"echo", "echo", nil, []string{"hello", "again"}, "hello\nagain\n"},
		{"epoll", "echo", nil, []string{"hello"}, "hello\n"},
		{"echo", "ping", nil, []string{"200"}, "200 round trips: min "},
		{"counter", "counter", nil, []string{"50"}, "added 50, the counter is 50\n"},
		{"fanin", "fanin", []string{"4000"}, []string{"4000"}, "sent\n"},
		{"readserver", "readserver", []string{file}, nil, content},
		{"echo", "echo.py", nil, []string{"hello"}, "hello\n"},
		{"echo.py", "echo", nil, []string{"hello"}, "hello\n"},
		{"echo", "echo.rs", nil, []string{"hello"}, "hello\n"},
		{"echo.rs", "echo.rs", nil, []string{"hello"}, "hello\nhello is in the server's memory\n"},
	} {
		t.Run(c.server+","+c.client, func(t *testing.T) {
			s := example(t, ds[0], dir, c.server, c.serverArgs...)
			out, err := s.StdoutPipe()
			if err == nil {
				err = s.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Wait()
			defer s.Process.Kill()
			line, err := bufio.NewReader(out).ReadString('\n')
			addr, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
			if !ok {
				t.Fatalf("%s said %q, %v", c.server, line, err)
			}
			got, err := example(t, ds[1], dir, c.client, append([]string{"-to", addr}, c.args...)...).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(got), c.want) {
				t.Errorf("%s: %v, %.2000q, want %.200q", c.client, err, got, c.want)
			}
		})
	}
}
