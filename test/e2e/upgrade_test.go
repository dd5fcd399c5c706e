package e2e

import (
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
)

// TestUpgrade replaces daemons again and again under traffic of all kinds. Applications
// notice nothing: every call works, every datagram arrives once and in order, no operation
// is UNKNOWN, and nobody is notified of anything. Peers see a reset connection and the same
// instance.
func TestUpgrade(t *testing.T) {
	for _, tc := range []struct {
		name string
		same bool
		args []string
	}{{"network", false, nil}, {"crc", false, []string{"-crc", "on"}}, {"threads", false, []string{"-crc", "on", "-io-threads", "2"}}, {"host", true, nil}} {
		t.Run(tc.name, func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				hosts := newHosts(t, 2, withArgs(tc.args...))
				if tc.same {
					hosts[0] = hosts[1]
				}
				testUpgrade(t, hosts[0], hosts[1])
			})
		})
	}
}

func testUpgrade(t *testing.T, a, b *host) {
	instances := []ctl.ID{a.status().Instance, b.status().Instance}
	l := startLoad(t, a, b, 20000)
	d := startDeeds(t, a, b)
	rounds := 3
	if long {
		rounds = 200
	}
	if d.breaks = rounds; a == b {
		d.breaks = 0
	}
	for i := range rounds {
		l.progress(uint64(i % 3 * 50))
		a.upgrade()
		if a != b {
			l.progress(uint64(i % 2 * 50))
			b.upgrade()
		}
	}
	l.progress(100)
	d.finish()
	l.finish()
	l.audit.all(t, l.socks[0], l.socks[1])
	if l.ops.sums[rds.Unknown] > 0 || l.ops.stale > 0 {
		t.Errorf("statuses %v, %d stale", l.ops.sums, l.ops.stale)
	}
	for i, h := range []*host{a, b} {
		if now := h.status().Instance; now != instances[i] {
			t.Errorf("the instance was %v and is %v", instances[i], now)
		}
	}
	t.Logf("datagrams %+v, operations %v, %d deeds", l.audit.sums(), l.ops.sums, d.done)
}

// onlyBreaks checks that sockets were notified of nothing but at most n broken connections,
// each of which came back. Those of the host whose daemon is replaced are notified of nothing.
func onlyBreaks(t *testing.T, n int, socks ...*rds.Socket) {
	t.Helper()
	for _, s := range socks {
		var ns [128]rds.Notice
		downs, ups := 0, 0
		for _, x := range ns[:s.Notices(ns[:])] {
			switch x.Kind {
			case rds.PeerDown:
				downs += int(x.Count)
			case rds.PeerUp:
				ups += int(x.Count)
			default:
				t.Errorf("socket %v was notified of %v %+v", s.LocalAddrPort(), x.Kind, x)
			}
		}
		if downs > n || ups != downs {
			t.Errorf("socket %v: %d times down and %d times up, want at most %d", s.LocalAddrPort(), downs, ups, n)
		}
	}
}
