package e2e

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// freePort returns a TCP port that is free at an address of this test. Only a listener at every
// address could take it in between.
func freePort(t *testing.T, at netip.Addr) string {
	t.Helper()
	for port := 4000; ; port++ {
		l, err := net.Listen("tcp", netip.AddrPortFrom(at, uint16(port)).String())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return strconv.Itoa(port)
	}
}

// TestTools runs rdsctl bench and stress as people use them: in a terminal, and ended with
// Ctrl-C or killed. The daemons must have nothing left of them.
func TestTools(t *testing.T) {
	isolated(t, func(t *testing.T) {
		hosts := newHosts(t, 2)
		tool := func(h *host, args ...string) *process {
			return spawn(t, nil, program("rdsctl"), append([]string{"--socket", h.sock}, args...)...)
		}
		printed := func(p *process, text string) {
			t.Helper()
			eventually(t, "output "+text, func() error {
				if !strings.Contains(p.stdout(), text) {
					return errors.New(p.stdout() + p.log())
				}
				return nil
			})
		}
		interrupted := func(p *process, want string) {
			t.Helper()
			p.Signal(syscall.SIGINT)
			if code := p.wait(); code != 0 || !strings.Contains(p.stdout(), want) {
				t.Errorf("%v: status %d\n%s\n%s", p.Cmd.Args, code, p.stdout(), p.log())
			}
		}

		server := tool(hosts[1], "bench", "-serve")
		server.saw("serving at")
		for _, mode := range []string{"rtt", "rate", "rdma-read", "rdma-write"} {
			bench := tool(hosts[0], "bench", "-mode", mode, "-verify", "-d", "0", "-warmup", "0", "-interval", "50ms", hosts[1].addr().String())
			printed(bench, "\n       0.1 ")
			interrupted(bench, "every byte was as expected")
		}
		// The server must drop what a killed client had: at its next answer, or when the client was silent for too long.
		killed := tool(hosts[0], "bench", "-d", "0", "-interval", "50ms", hosts[1].addr().String())
		printed(killed, "\n       0.1 ")
		killed.Kill()
		server.saw(": gone: ")
		interrupted(server, "")

		link := filepath.Join(t.TempDir(), "rds-stress")
		if err := os.Symlink(program("rdsctl"), link); err != nil {
			t.Fatal(err)
		}
		port := freePort(t, hosts[1].addr())
		passive := spawn(t, nil, link, "--socket", hosts[1].sock, "-r", hosts[1].addr().String(), "-p", port)
		printed(passive, "waiting for incoming connection")
		active := tool(hosts[0], "stress", "-s", hosts[1].addr().String(), "-r", hosts[0].addr().String(), "-p", port, "-t", "2", "-d", "2", "-v", "-D", "4k")
		printed(active, "tsks ")
		interrupted(active, "(average)")
		if code := passive.wait(); code != 0 || !strings.Contains(passive.stdout(), "(average)") {
			t.Errorf("passive: status %d\n%s\n%s", code, passive.stdout(), passive.log())
		}
	})
}
