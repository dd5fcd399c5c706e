package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestPaths: between two daemons that want several paths everything holds that holds with one, over resets and
// planned restarts, and sockets are spread over the paths by their ports.
func TestPaths(t *testing.T) {
	args := withArgs("-peers-paths", fmt.Sprint(paths))
	t.Run("plain", func(t *testing.T) {
		isolated(t, func(t *testing.T) { testPaths(t, newHosts(t, 2, args)) })
	})
	t.Run("TLS", func(t *testing.T) {
		isolated(t, func(t *testing.T) {
			var hosts []*host
			ca := tlstest.NewCA(t)
			for range 2 {
				h, _ := newSecured(t, ca, args)
				hosts = append(hosts, h)
			}
			testPaths(t, hosts)
			for _, p := range hosts[0].rdsctlJSON("peers").Peers {
				if p.TLS == "" {
					t.Errorf("path %d has no TLS", p.Path)
				}
			}
		})
	})
}

const paths = 4

func testPaths(t *testing.T, hosts []*host) {
	const port = 5000
	l := startLoad(t, hosts[0], hosts[1], 20000)
	audit := newAudit()
	var socks []*rds.Socket
	var readers sync.WaitGroup
	from, to := hosts[0].open(), hosts[1].open()
	for i := range uint16(2 * paths) {
		a, b := hosts[0].bind(from, port+i), hosts[1].bind(to, port+i)
		socks = append(socks, a, b)
		readers.Go(func() { l.ends(audit.take(b)) })
	}
	send := func() {
		for i := 0; i < len(socks); i += 2 {
			for n := range 50 {
				if err := audit.send(socks[i], socks[i+1].LocalAddrPort(), make([]byte, minPayload+n*97)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i := range 6 {
		send()
		l.progress(50)
		switch h := hosts[i%2]; {
		case i < 4:
			if err := h.reset(hosts[1-i%2]); err != nil {
				t.Error(err)
			}
		default:
			h.upgrade()
		}
	}
	send()
	l.progress(100)
	audit.balance(t, socks...)
	resetOne(t, hosts)
	send()
	audit.balance(t, socks...)
	l.finish()
	for _, h := range hosts {
		up := map[uint8]bool{}
		for _, p := range h.rdsctlJSON("peers").Peers {
			up[p.Path] = up[p.Path] || p.State == "up"
		}
		if len(up) != paths {
			t.Errorf("paths are up or not as in %v, want %d that are", up, paths)
		}
	}
	contains(t, "rdsctl peers", hosts[0].rdsctl("peers"), "0.3")
	for _, s := range socks {
		s.Close()
	}
	readers.Wait()
	audit.all(t, socks...)
	l.audit.all(t, l.socks[0], l.socks[1])
	if l.ops.sums[rds.Unknown] > 0 || l.ops.stale > 0 {
		t.Errorf("statuses %v, %d stale", l.ops.sums, l.ops.stale)
	}
}

// resetOne resets one path, and no other notices.
func resetOne(t *testing.T, hosts []*host) {
	const path = 1
	resets := func() (n [paths]uint64) {
		for _, p := range hosts[0].rdsctlJSON("peers").Peers {
			if p.Remote == hosts[1].addr() {
				n[p.Path] += p.Resets
			}
		}
		return n
	}
	want := resets()
	want[path]++
	contains(t, "rdsctl peer reset", hosts[0].rdsctl("peer", "reset", hosts[1].addr().String(), "-path", fmt.Sprint(path)), "1")
	eventually(t, "a reset of one path", func() error {
		if got := resets(); got != want {
			return fmt.Errorf("the paths were reset %v times, want %v", got, want)
		}
		return nil
	})
}
