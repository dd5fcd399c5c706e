package vmlab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// perftest runs linux-rdma's ib_write_bw, ib_read_bw and ib_send_bw against examples/perftest,
// each as client and as server. rdma_cm makes their connections.
func perftest(t *testing.T, m *machine) {
	ours := build(t, "perftest")
	for _, c := range []struct {
		test        string
		size, iters int
		crc         string
	}{
		{"write", 65536, 200, "-crc=true"},
		{"read", 65536, 200, "-crc=true"},
		{"send", 65536, 200, "-crc=true"},
		{"write", 2, 1000, "-crc=false"},
		{"read", 1001, 1000, "-crc=false"},
		{"send", 1001, 2000, "-crc=false"},
	} {
		name := fmt.Sprintf("%s, %d bytes", c.test, c.size)
		args := []string{c.test, "-s", strconv.Itoa(c.size), "-n", strconv.Itoa(c.iters), c.crc}
		theirs := fmt.Sprintf("ib_%s_bw -R -F -s %d -n %d", c.test, c.size, c.iters)
		t.Run("theirs connects, "+name, func(t *testing.T) {
			m.begin(t)
			for try := 0; ; try++ {
				out, server, err := theirsConnects(t, m, theirs, ours, args)
				if strings.Contains(out, portTaken) && try < 3 {
					continue
				}
				if err != nil || !ourRate.Match(server.out.Bytes()) {
					t.Errorf("ours: %v\n%s", err, &server.out)
				}
				bandwidth(t, out, c.size, c.iters)
				return
			}
		})
		t.Run("ours connects, "+name, func(t *testing.T) {
			m.begin(t)
			defer say(t, m, "kill")
			say(t, m, "spawn %s -p %d", theirs, perfPort)
			say(t, m, "listening %d", perfPort)
			client := newCommand(t, ours, append(args, "-p", strconv.Itoa(m.forward[perfPort]), "127.0.0.1")...)
			if err := client.Run(); err != nil || !ourRate.Match(client.out.Bytes()) {
				t.Fatalf("ours: %v\n%s", err, &client.out)
			}
			bandwidth(t, say(t, m, "wait"), c.size, c.iters)
		})
	}
}

// portTaken is what perftest prints when its local port is in use. rdma_cm picks the port
// without asking TCP. Such a connection never reaches the host.
const portTaken = "Address already in use"

// theirsConnects returns perftest's output, and our server with how it ended.
func theirsConnects(t *testing.T, m *machine, theirs, ours string, args []string) (string, *command, error) {
	port := freePort(t)
	server := newCommand(t, ours, append(args, "-p", strconv.Itoa(port))...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitListening(t, port)
	defer say(t, m, "kill")
	say(t, m, "spawn %s -p %d %s", theirs, port, toHost)
	out := say(t, m, "wait")
	if strings.Contains(out, portTaken) {
		t.Log("perftest's port is taken")
		server.Process.Kill()
	}
	return out, server, server.Wait()
}

// ourRate matches the last line of our end. On a busy machine small messages give 0.00.
var ourRate = regexp.MustCompile(` messages, [0-9.]+ MB/s\n$`)

// bandwidth checks that perftest's output shows success: status 0, and the line of the result
// with size and iterations. It ignores the rates. They are from the machine's processor clock,
// which may stop or jump on a busy host.
func bandwidth(t *testing.T, out string, size, iters int) {
	t.Helper()
	result := regexp.MustCompile(fmt.Sprintf(`\|\s*%d\s+%d\s+[0-9.]+\s+([0-9.]+)\s+([0-9.]+)`, size, iters)).FindStringSubmatch(out)
	if !strings.HasPrefix(out, "0 ") || result == nil {
		t.Fatalf("theirs: %s", strings.ReplaceAll(out, "|", "\n"))
	}
	t.Logf("theirs: %s MB/s, %s million messages/s", result[1], result[2])
}
