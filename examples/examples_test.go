// Package examples tests the example programs as their users run them. Each is built
// in another module, outside this one, and runs as a process. Each side has a daemon.
package examples

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/rdstest"
)

var programs = []string{"echo", "ping", "fanin", "readserver", "counter", "packetconn", "epoll", "kv", "hello"}

func command(d *rdstest.Daemon, prog string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(outside.dir, prog), args...)
	cmd.Env = append(os.Environ(), "RDSD_SOCKET="+d.Socket())
	return cmd
}

// server is a program that was started and has said where it serves.
type server struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs bytes.Buffer
	addr string
}

func serve(t *testing.T, d *rdstest.Daemon, prog string, args ...string) *server {
	t.Helper()
	s := &server{cmd: command(d, prog, append([]string{"-bind", d.Addr().String() + ":0"}, args...)...)}
	s.cmd.Stderr = &s.errs
	pipe, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() }) // after end: nothing to kill
	s.out = bufio.NewReader(pipe)
	line, err := s.out.ReadString('\n')
	addr, ok := strings.CutPrefix(line, "serving ")
	if !ok {
		t.Fatalf("%s said %q, %v; %s", prog, line, err, &s.errs)
	}
	s.addr = strings.TrimSpace(addr)
	return s
}

// end waits until the server has ended, and returns the rest of its output. If interrupt is
// set, end interrupts the server first.
func (s *server) end(t *testing.T, interrupt bool) string {
	t.Helper()
	if interrupt {
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(s.out); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("server: %v; %s", err, &s.errs)
	}
	return rest.String()
}

// run runs a program to its end.
func run(t *testing.T, d *rdstest.Daemon, prog string, args ...string) string {
	t.Helper()
	out, failed := output(d, prog, args...)
	if failed != "" {
		t.Fatalf("%s %q: %s", prog, args, failed)
	}
	return out
}

func output(d *rdstest.Daemon, prog string, args ...string) (out, failed string) {
	cmd := command(d, prog, append([]string{"-bind", d.Addr().String() + ":0"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	o, err := cmd.Output()
	if err != nil {
		return string(o), fmt.Sprintf("%v: %s", err, &stderr)
	}
	return string(o), ""
}

func TestEcho(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	s := serve(t, d[0], "echo")
	if out := run(t, d[1], "echo", "-to", s.addr, "one", "two", "one"); out != "one\ntwo\none\n" {
		t.Errorf("got %q", out)
	}
	s.end(t, true)
	if _, failed := output(d[1], "echo", "-to", s.addr, "gone"); !strings.Contains(failed, "nobody is bound to "+s.addr) {
		t.Errorf("with the server gone: %q", failed)
	}
}

// TestEpoll: event loops on both sides, with more messages than a send buffer
// takes, so that both wait for room and go on.
func TestEpoll(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	s := serve(t, d[0], "epoll")
	for _, size := range []string{"0", "8000"} {
		out := run(t, d[1], "epoll", "-to", s.addr, "-n", "3000", "-size", size)
		if !strings.HasPrefix(out, "3000 messages of "+size+" bytes sent and answered, ") || size != "0" && strings.Contains(out, " 0 waits") {
			t.Errorf("got %q", out)
		}
	}
	s.end(t, true)
	if _, failed := output(d[1], "epoll", "-to", s.addr); !strings.Contains(failed, "nobody is bound to "+s.addr) {
		t.Errorf("with the server gone: %q", failed)
	}
}

// TestKV: what one host puts, another gets by reading the server's memory.
func TestKV(t *testing.T) {
	d := rdstest.StartDaemons(t, 3)
	s := serve(t, d[0], "kv")
	for _, value := range []string{"red", "", strings.Repeat("long", 250)} {
		run(t, d[1], "kv", "-to", s.addr, "put", "colour", value)
		if out := run(t, d[2], "kv", "-to", s.addr, "get", "colour"); out != value+"\n" {
			t.Errorf("got %q, want %q", out, value)
		}
	}
	for args, want := range map[[3]string]string{
		{"get", "shape"}: "not found",
		{"put", "big", strings.Repeat("big", 1000)}: "too long",
		{"drop", "colour"}:                          "want put KEY VALUE or get KEY",
	} {
		_, failed := output(d[1], "kv", append([]string{"-to", s.addr}, strings.Fields(strings.Join(args[:], " "))...)...)
		if !strings.Contains(failed, want) {
			t.Errorf("%s %s: %q, want %q", args[0], args[1], failed, want)
		}
	}
	s.end(t, true)
	if _, failed := output(d[1], "kv", "-to", s.addr, "get", "colour"); !strings.Contains(failed, "no server at the destination") {
		t.Errorf("with the server gone: %q", failed)
	}
	source, err := os.ReadFile("kv/main.go")
	if n := bytes.Count(source, []byte("\n")); err != nil || n > 120 {
		t.Errorf("kv has %d lines, %v; it shows that 120 are enough", n, err)
	}
}

func TestPing(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	s := serve(t, d[0], "ping", "-serve")
	for _, size := range []string{"8", "64", "70000"} {
		if out := run(t, d[1], "ping", "-to", s.addr, "-n", "50", "-size", size); !strings.HasPrefix(out, "50 round trips of "+size+" bytes to "+s.addr) {
			t.Errorf("got %q", out)
		}
	}
	s.end(t, true)
	if _, failed := output(d[1], "ping", "-to", s.addr, "-wait", "100ms"); !strings.Contains(failed, "no answer from "+s.addr) {
		t.Errorf("with the server gone: %q", failed)
	}
}

func TestFanin(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	s := serve(t, d[0], "fanin", "-messages", "8000")
	if out := run(t, d[1], "fanin", "-to", s.addr, "-messages", "8000"); !strings.HasPrefix(out, "8000 messages sent, stopped by congestion: ") {
		t.Errorf("got %q", out)
	}
	if out := s.end(t, false); out != "8000 messages from 8 senders, all in order\n" {
		t.Errorf("the collector said %q", out)
	}
}

func TestReadServer(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	for _, size := range []int{0, 1, 256 << 10, 5<<20 + 12345} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i*31 + i>>8*7)
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := serve(t, d[0], "readserver", file)
		if got := run(t, d[1], "readserver", "-from", s.addr); got != string(data) {
			t.Errorf("%d bytes: got %d others", size, len(got))
		}
		s.end(t, true)
	}
}

// TestCounter: several clients at a time draw every number once.
func TestCounter(t *testing.T) {
	d := rdstest.StartDaemons(t, 3)
	s := serve(t, d[0], "counter")
	outs := make(chan string, 4)
	for i := range cap(outs) {
		go func() {
			out, failed := output(d[i%3], "counter", "-to", s.addr, "-n", "100")
			outs <- out + failed
		}()
	}
	var all []string
	for range cap(outs) {
		all = append(all, strings.Fields(<-outs)...)
	}
	slices.Sort(all)
	want := make([]string, 400)
	for i := range want {
		want[i] = fmt.Sprint(i + 1)
	}
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("drew %v", all)
	}
	if out := s.end(t, true); out != "last number 400\n" {
		t.Errorf("the server said %q", out)
	}
}

func TestPacketConn(t *testing.T) {
	d := rdstest.StartDaemons(t, 2)
	for _, network := range []string{"udp", "rds"} {
		s := serve(t, d[0], "packetconn", "-network", network)
		out := run(t, d[1], "packetconn", "-network", network, "-to", s.addr, "to", "be", "or", "not", "to", "be")
		if out != "to 1\nbe 1\nor 1\nnot 1\nto 2\nbe 2\n" {
			t.Errorf("%s: got %q", network, out)
		}
		s.end(t, true)
	}
}

// TestWrongUse: the error says what is wrong, in one line.
func TestWrongUse(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)
	for _, c := range []struct{ args, want string }{
		{"echo -to nowhere x", "-to:"},
		{"echo -bind here", "-bind:"},
		{"echo -bind 203.0.113.1:0", "address"},
		{"ping", "one of -serve and -to"},
		{"ping -to 127.0.0.1:1 -size 3", "-size 3"},
		{"ping -to 127.0.0.1:9 -n 0", "-n 0"},
		{"fanin -messages 7 -senders 2", "multiple"},
		{"readserver", "name the file"},
		{"readserver /does/not/exist", "no such file"},
		{"counter -to x", "-to:"},
		{"packetconn -network tcp", "-network \"tcp\""},
	} {
		f := strings.Fields(c.args)
		_, failed := output(d[0], f[0], f[1:]...)
		if !strings.Contains(failed, c.want) || strings.Count(failed, "\n") != 1 || !strings.HasPrefix(failed, "exit status 1: "+f[0]+": ") {
			t.Errorf("%s: %q, want %q", c.args, failed, c.want)
		}
	}
}

// TestShort: an example is short enough to be read in a few minutes.
func TestShort(t *testing.T) {
	for _, p := range programs {
		b, err := os.ReadFile(filepath.Join(p, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b, []byte("\n")); n >= 150 {
			t.Errorf("%s has %d lines, want fewer than 150", p, n)
		}
	}
}
