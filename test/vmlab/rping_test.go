package vmlab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rping runs rdma-core's rping against examples/rping, each as client and as server.
func rping(t *testing.T, m *machine) {
	ours := build(t, "rping")
	for _, crc := range []string{"-crc=true", "-crc=false"} {
		for _, size := range []int{64, 23, 5001, 65535} {
			name := fmt.Sprintf("%s, %d bytes", crc, size)
			t.Run("theirs connects, "+name, func(t *testing.T) { rpingClient(t, m, ours, crc, size) })
			t.Run("ours connects, "+name, func(t *testing.T) { rpingServer(t, m, ours, crc, size) })
		}
	}
}

const pings = 3

// build builds the program of examples/name.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", file, "github.com/rdsd/rdsd/examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

// command is a process of the host and its output.
type command struct {
	*exec.Cmd
	out bytes.Buffer
}

// newCommand makes a command that is killed when it takes too long.
func newCommand(t *testing.T, name string, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := &command{Cmd: exec.CommandContext(ctx, name, args...)}
	c.Stdout, c.Stderr = &c.out, &c.out
	return c
}

// say has the machine run a command and returns the answer's text.
func say(t *testing.T, m *machine, format string, args ...any) string {
	t.Helper()
	a := m.ask(format, args...)
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a.text
}

// rpingClient runs rdma-core's client with our server.
func rpingClient(t *testing.T, m *machine, ours, crc string, size int) {
	m.begin(t)
	port := freePort(t)
	server := newCommand(t, ours, "-s", "-p", strconv.Itoa(port), "-S", strconv.Itoa(size), "-v", crc)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitListening(t, port)
	defer say(t, m, "kill")
	say(t, m, "spawn rping -c -a %s -p %d -C %d -S %d -v -V", toHost, port, pings, size)
	check(t, "theirs", say(t, m, "wait"), "0 ", "ping data: rdma-ping-")
	if err := server.Wait(); err != nil {
		t.Errorf("ours: %v", err)
	}
	check(t, "ours", server.out.String(), "server", "server ping data: rdma-ping-")
}

// rpingServer runs rdma-core's server with our client.
func rpingServer(t *testing.T, m *machine, ours, crc string, size int) {
	m.begin(t)
	defer say(t, m, "kill")
	say(t, m, "spawn rping -s -p %d -C %d -S %d -v", rpingPort, pings, size)
	say(t, m, "listening %d", rpingPort)
	client := newCommand(t, ours, "-c", "-p", strconv.Itoa(m.forward[rpingPort]), "-C", strconv.Itoa(pings),
		"-S", strconv.Itoa(size), "-v", "-V", "-timeout", "30s", crc)
	if err := client.Run(); err != nil {
		t.Fatalf("ours: %v\n%s", err, &client.out)
	}
	check(t, "ours", client.out.String(), "ping", "ping data: rdma-ping-")
	check(t, "theirs", say(t, m, "wait"), "0 ", "server ping data: rdma-ping-")
}

// check checks that the output begins with begin and has a line for each ping.
func check(t *testing.T, who, out, begin, line string) {
	t.Helper()
	if !strings.HasPrefix(out, begin) || strings.Count(out, line) != pings {
		t.Errorf("%s: %.300q, want it to begin with %q and to have %q %d times", who, out, begin, line, pings)
	}
}

// waitListening waits until the kernel's table shows a listener. A connection would be taken for
// a client.
func waitListening(t *testing.T, port int) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(table, fmt.Appendf(nil, "0100007F:%04X 00000000:0000 0A", port)) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody listens on port %d", port)
		}
	}
}
