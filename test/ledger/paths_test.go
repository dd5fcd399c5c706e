package ledger

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/test/ledger/book"
	"github.com/rdsd/rdsd/test/ledger/plan"
)

// flowLimit is what a TCP connection of TestPaths may carry, in bytes a second: 500 Mbit/s.
const flowLimit = 500_000_000 / 8

// TestPaths measures eight sockets over one path and over four where each TCP flow is limited, and wants 3.6 times the
// rate. The limit is that of each of the sender's sockets, which the kernel keeps without a queueing discipline.
// Without -ledger.measure it is short and judges no rate.
func TestPaths(t *testing.T) {
	lasts := 200 * time.Millisecond
	if *measured {
		lasts = 5 * time.Second
	}
	rates := map[int]float64{}
	for _, paths := range []int{1, 4} {
		rates[paths] = pacedRate(t, paths, lasts)
		t.Logf("%d paths, 8 sockets, flows of at most 500 Mbit/s: %.0f Mbit/s", paths, rates[paths]*8/1e6)
	}
	r := rates[4] / rates[1]
	if t.Logf("4 paths have %.2f times the rate of one", r); *measured && r < 3.6 {
		t.Errorf("%.2f times, want 3.6", r)
	}
}

// pacedRate is the bytes a second of eight sockets of one host to eight of another.
func pacedRate(t *testing.T, paths int, lasts time.Duration) float64 {
	const size, sockets, firstPort = 64 << 10, 8, 4000
	dir := t.TempDir()
	log, err := book.Create(filepath.Join(dir, "faults.log"))
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Calm(addresses(t))
	p.Paths = paths
	hosts := newHosts(t, newNetwork(), p, log, dir)[:2]
	for _, h := range hosts {
		if err := h.start(); err != nil {
			t.Fatal(err)
		}
		defer h.daemon.kill(patience)
	}
	var c [2]*rds.Client
	for i, h := range hosts {
		if c[i], err = rds.Open(context.Background(), rds.Options{Socket: h.sock}); err != nil {
			t.Fatal(err)
		}
		defer c[i].Close()
	}
	var all []*stream
	for n := range uint16(sockets) {
		s := &stream{from: c[0], to: c[1]}
		for i, at := range []**rds.Socket{&s.src, &s.dst} {
			if *at, err = c[i].Bind(netip.AddrPortFrom(hosts[i].addr, firstPort+n)); err != nil {
				t.Fatal(err)
			}
		}
		s.flow(size)
		all = append(all, s)
	}
	for _, s := range all { // all paths are up then
		for s.n.Load() < 10 {
			time.Sleep(time.Millisecond)
		}
	}
	u, err := hosts[0].upgrades() // its process is not the one that was started
	if err != nil {
		t.Fatal(err)
	}
	if n := limitFlows(t, u.PID, hosts[1].addr); n != paths {
		t.Fatalf("%d flows to %v, want %d", n, hosts[1].addr, paths)
	}
	time.Sleep(lasts / 5) // until what had left before has arrived
	sum := func() (n uint64) {
		for _, s := range all {
			n += s.n.Load()
		}
		return n
	}
	before, begin := sum(), time.Now()
	time.Sleep(lasts)
	rate := float64(sum()-before) * size / time.Since(begin).Seconds()
	for _, s := range all {
		s.close() // the first ends the others, too
	}
	return rate
}

// limitFlows limits each TCP connection between the process pid and addr, which has to be connected. It returns how many there are.
func limitFlows(t *testing.T, pid int, addr netip.Addr) (n int) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if at, err := os.Readlink(filepath.Join(dir, e.Name())); err != nil || !strings.HasPrefix(at, "socket:") {
			continue
		}
		var there int
		_, _ = fmt.Sscan(e.Name(), &there)
		fd, err := unix.PidfdGetfd(p, there, 0)
		if err != nil {
			t.Skipf("the daemon's sockets cannot be limited: %v", err)
		}
		if sa, err := unix.Getpeername(fd); err == nil {
			if in, ok := sa.(*unix.SockaddrInet4); ok && netip.AddrFrom4(in.Addr) == addr {
				n++
				if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, flowLimit); err != nil {
					t.Error(err)
				}
			}
		}
		unix.Close(fd)
	}
	return n
}
