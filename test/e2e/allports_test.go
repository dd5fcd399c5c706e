package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// TestAllPorts has one process bind every port of an address, one socket after the other, with
// the daemon's defaults. The next bind must be refused. Idle sockets must cost the daemon little
// memory, and closing them must give all of it back.
func TestAllPorts(t *testing.T) {
	isolated(t, func(t *testing.T) {
		const all = 65534 // ports 2 to 65535
		h := newHost(t)
		c := h.open()
		before := residentBytes(t, h.pid())
		start := time.Now()
		seen := map[uint16]bool{}
		socks := make([]*rds.Socket, 0, all)
		for range all {
			s := h.bind(c, 0)
			seen[s.LocalAddrPort().Port()] = true
			socks = append(socks, s)
		}
		took := time.Since(start)
		if len(seen) != all || seen[0] || seen[1] {
			t.Errorf("%d ports, 0 or 1 among them: %v", len(seen), seen[0] || seen[1])
		}
		if s, err := c.Bind(h.at(0)); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("socket %d: %v, %v", all+1, s, err)
		}
		each := max(0, residentBytes(t, h.pid())-before) / all
		if each > 1<<10 {
			t.Errorf("an idle socket costs the daemon %d bytes", each)
		}
		t.Logf("%d sockets in %v, %d bytes of the daemon each", all, took, each)
		// Any of the sockets works.
		if _, err := socks[7].SendTo([]byte("here"), socks[all-1].LocalAddrPort()); err != nil {
			t.Error(err)
		}
		if n, from, err := socks[all-1].RecvFrom(make([]byte, 10)); n != 4 || err != nil || from != socks[7].LocalAddrPort() {
			t.Errorf("%d bytes from %v, %v", n, from, err)
		}
		if err := socks[0].Close(); err != nil {
			t.Error(err)
		}
		socks[0] = h.bind(c, 0) // the only free port
		c.Close()
		eventually(t, "the daemon", func() error {
			if n := h.gauge(stats.Sockets); n != 0 {
				return fmt.Errorf("has %d sockets", n)
			}
			return nil
		})
	})
}

// residentBytes returns the memory of process pid that it shares with no other.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		var kib int
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("no RssAnon in the status of process %d", pid)
	return 0
}
