package librds

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rdstest"
)

// driver is the C program of tests/driver.c, which carries out a script's commands.
type driver struct {
	in   io.WriteCloser
	out  *bufio.Reader
	err  bytes.Buffer
	wait func() error
}

func startDriver(t *testing.T, sanitize string) *driver {
	t.Helper()
	return drive(t, program(t, sanitize, "driver"))
}

// drive starts a program that carries out commands.
func drive(t *testing.T, cmd *exec.Cmd) *driver {
	t.Helper()
	d := &driver{wait: cmd.Wait}
	cmd.Stderr = &d.err
	var err error
	if d.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A driver that hangs is ended, so that the test ends with what it has said.
	kill := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() { kill.Stop() })
	return d
}

// do carries out one command.
func (d *driver) do(line string) (string, error) {
	if _, err := fmt.Fprintln(d.in, line); err != nil {
		return "", err
	}
	answer, err := d.out.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// end ends the driver, which frees all it has made.
func (d *driver) end() error {
	d.in.Close()
	if err := d.wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, d.err.String())
	}
	return nil
}

// doer carries out commands.
type doer interface {
	do(line string) (string, error)
	end() error
}

// play runs a script against daemons of its own and returns the answers. In the script A
// and B stand for the daemons' addresses SA and SB for their control sockets, and SF for that of a fake daemon. A line
// that begins with ! is for the test itself: "!stop 1" stops the second daemon.
func play(t *testing.T, script string, p doer) []string {
	t.Helper()
	start := rdstest.StartDaemons
	if strings.HasPrefix(script, "!tcp") {
		start = rdstest.StartRDSTCP
	}
	ds := start(t, 2)
	fake := startFake(t, nil)
	names := strings.NewReplacer("SF", fake.path, "SA", ds[0].Socket(), "SB", ds[1].Socket(), "A:", ds[0].Addr().String()+":", "B:", ds[1].Addr().String()+":")
	back := strings.NewReplacer(ds[0].Addr().String(), "A", ds[1].Addr().String(), "B")
	var answers []string
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '!':
			harness(t, ds, fake, line)
			continue
		}
		answer, err := p.do(names.Replace(line))
		if err != nil {
			t.Fatalf("%s: %v %v", line, err, p.end())
		}
		answers = append(answers, line+" => "+back.Replace(answer))
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
	return answers
}

// harness carries out a line for the test itself. "!tcp" is the first of a script whose daemons
// reach each other by RDS/TCP.
func harness(t *testing.T, ds []*rdstest.Daemon, fake *fakeDaemon, line string) {
	t.Helper()
	if line == "!tcp" {
		return
	}
	var what string
	var i int
	if _, err := fmt.Sscanf(line, "!%s %d", &what, &i); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	switch what {
	case "stop":
		if err := ds[i].Stop(); err != nil {
			t.Fatal(err)
		}
	case "start":
		ds[i].Start(t)
	case "overrun":
		fake.overrun(uint32(i))
	default:
		t.Fatal("no such line:", line)
	}
}

// scripts are the scripts of testdata/conformance.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/conformance/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	all := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".txt")] = string(b)
	}
	return all
}

// TestConformance: package rds and librds give the same answer to every command of every
// script.
func TestConformance(t *testing.T) {
	built(t, "")
	conform(t, func(t *testing.T) *driver { return startDriver(t, "") })
}

// TestConformancePython: so does package rds for Python.
func TestConformancePython(t *testing.T) {
	command(t) // or skipped
	conform(t, func(t *testing.T) *driver { return drive(t, command(t, "../python/testdata/player.py")) })
}

// command is one of the Python interpreter with package rds.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return python.Command(t, "..", func() string { return built(t, "") }, args...)
}

// conform plays each script with package rds and with the program that start starts.
func conform(t *testing.T, start func(t *testing.T) *driver) {
	t.Helper()
	for name, script := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := play(t, script, newPlayer())
			got := play(t, script, start(t))
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("package rds: %s\n      other: %s", want[i], got[i])
				}
				if strings.Contains(want[i], "no command") {
					t.Errorf("%s", want[i])
				}
			}
			if testing.Verbose() {
				t.Logf("\n%s", strings.Join(want, "\n"))
			}
		})
	}
}

// TestSanitized runs the scripts under the sanitizers.
func TestSanitized(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library twice more")
	}
	for _, s := range []string{"address,undefined", "thread"} {
		t.Run(s, func(t *testing.T) {
			built(t, s)
			for name, script := range scripts(t) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					play(t, script, startDriver(t, s))
				})
			}
		})
	}
}
