package e2e

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
)

// narrowFlow has a host drop what arrives in packets of more than the first number of bytes, but not in the flows with a port of the list
// behind it.
const narrowFlow = `ip link set wire gso_max_segs 1
nft -f - <<'END'
add table ip hole
add chain ip hole in { type filter hook input priority 0; }
add rule ip hole in iifname wire tcp sport { %[2]s } accept
add rule ip hole in iifname wire tcp dport { %[2]s } accept
add rule ip hole in iifname wire ip length > %[1]d drop
END`

// TestPathBlackHole has large packets of one path of four vanish without a word. That path's sockets wait, and no other: those of
// the other paths go on and are notified of nothing. Where smaller segments pass, the path goes on with them. Else its messages
// arrive when the rule has gone, each once and in order.
func TestPathBlackHole(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit int
		mends bool
	}{{"smaller segments pass", 1300, true}, {"only small messages pass", 400, false}} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := twoNarrow(t, func(string) string { return fmt.Sprint("-tls-mode off -peers-paths ", paths) })
			h := newHole(t, a, b)
			h.send(minPayload, all)
			h.arrive(all)
			flows := h.flows()
			if len(flows) != paths {
				t.Fatalf("TCP connections from ports %v, want %d", flows, paths)
			}
			rule := fmt.Sprintf(narrowFlow, tc.limit, strings.Join(flows[1:], ", "))
			a.run(rule)
			b.run(rule)
			h.find()
			for range 3 { // those of the path wait from the first round on
				h.send(20_000, all)
				h.send(minPayload, all)
				h.arrive(h.others)
			}
			if !tc.mends {
				h.breaks()
				h.waits()
				a.run("nft delete table ip hole")
				b.run("nft delete table ip hole")
			}
			h.arrive(all)
			h.judge(flows[1:], tc.mends)
		})
	}
}

// hole is two hosts with a socket of each in each path, twice.
type hole struct {
	t     *testing.T
	a, b  *netHost
	socks [2][2 * paths]*rds.Socket
	audit *audit
	path  int // whose large packets vanish
}

// newHole connects to both daemons.
func newHole(t *testing.T, a, b *netHost) *hole {
	h := &hole{t: t, a: a, b: b, audit: newAudit()}
	var readers sync.WaitGroup
	t.Cleanup(readers.Wait)
	for i, on := range []*netHost{a, b} {
		c, err := rds.Open(t.Context(), rds.Options{Socket: "/proc/" + on.pid() + "/root/run/rdsd.sock"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for n := range h.socks[i] {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), uint16(5000+n))
			if h.socks[i][n], err = c.Bind(at); err != nil {
				t.Fatal(err)
			}
			readers.Go(func() { _ = h.audit.take(h.socks[i][n]) })
		}
	}
	return h
}

func all(int) bool { return true }

// others says whether a socket is in another path than that whose packets vanish.
func (h *hole) others(port int) bool { return port%paths != h.path }

// send has each socket that is among which send size bytes to its like.
func (h *hole) send(size int, which func(port int) bool) {
	h.t.Helper()
	for n := range h.socks[0] {
		for i, s := range [2]*rds.Socket{h.socks[0][n], h.socks[1][n]} {
			if !which(5000 + n) {
				continue
			}
			if err := h.audit.send(s, h.socks[1-i][n].LocalAddrPort(), make([]byte, size)); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// missing is how many messages of the sockets among which have not arrived.
func (h *hole) missing(which func(port int) bool) (n uint64) {
	h.audit.mu.Lock()
	defer h.audit.mu.Unlock()
	for f, l := range h.audit.flows {
		if which(int(f.src.Port())) {
			n += l.sent - l.arrived
		}
	}
	return n
}

// arrive waits until what the sockets among which have sent has arrived.
func (h *hole) arrive(which func(port int) bool) {
	h.t.Helper()
	eventually(h.t, "messages", func() error {
		if n := h.missing(which); n > 0 {
			return fmt.Errorf("%d have not arrived", n)
		}
		return nil
	})
}

var tcpFlow = regexp.MustCompile(`10\.0\.0\.\d:(\d+)\s+10\.0\.0\.\d:(\d+)`)

// flows are the ports of the connections between the two daemons that are not theirs.
func (h *hole) flows() (ports []string) {
	if _, err := exec.LookPath("ss"); err != nil {
		h.t.Skip("ss is not installed: apt-get install -y --no-install-recommends iproute2")
	}
	for _, f := range tcpFlow.FindAllStringSubmatch(h.a.run("ss -tnH state established"), -1) {
		for _, port := range f[1:] {
			if port != "18634" {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// find finds the path, by a large ping on each: no answer names it. Small ones pass on all.
func (h *hole) find() {
	h.t.Helper()
	h.path = -1
	for path := range paths {
		out := h.a.run(fmt.Sprintf("bin/rdsctl ping 10.0.0.2 -path %d -size 8000 -c 1 -timeout 2500ms 2>&1 || true", path))
		name := ctl.LanePath{Path: uint8(path)}.String()
		switch {
		case strings.Contains(out, "reply from 10.0.0.2 by lane "+name+": seq 1, "):
		case h.path < 0 && strings.Contains(out, "arge packets do not pass"):
			h.path = path
		default:
			h.t.Fatalf("a large ping by path %d: %s", path, out)
		}
		h.a.run(fmt.Sprintf("bin/rdsctl ping 10.0.0.2 -path %d -c 1 -timeout 60s", path))
	}
	if h.path < 0 {
		h.t.Fatal("large packets pass on all paths")
	}
}

// peers are the connections of a host.
func (h *hole) peers(on *netHost) []ctl.PeerInfo {
	h.t.Helper()
	r, err := ctl.Parse([]byte(on.run("bin/rdsctl peers -o json-v2")), ctl.KindPeers)
	if err != nil {
		h.t.Fatal(err)
	}
	return r.Peers
}

// breaks waits until the path was broken off because nothing passes, and has the others go on all the time.
func (h *hole) breaks() {
	h.t.Helper()
	eventually(h.t, "the end of the path's connection", func() error {
		h.send(20_000, h.others)
		h.arrive(h.others)
		for _, p := range append(h.peers(h.a), h.peers(h.b)...) {
			if int(p.Path) == h.path && p.Resets > 0 {
				return nil
			}
		}
		return fmt.Errorf("path %d was not reset", h.path)
	})
}

// waits checks that the path's sockets wait, and that rdsctl stalls shows that path alone.
func (h *hole) waits() {
	h.t.Helper()
	if n, want := h.missing(all), uint64(2*2*2*3); n != want { // two sockets of each host, with two messages in each of three rounds
		h.t.Errorf("%d messages have not arrived, want the %d of path %d", n, want, h.path)
	}
	for _, on := range []*netHost{h.a, h.b} {
		r, err := ctl.Parse([]byte(on.run("bin/rdsctl stalls -o json-v2")), ctl.KindStalls)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(r.Stalls) != 1 || int(r.Stalls[0].Path) != h.path {
			h.t.Errorf("%s: rdsctl stalls shows %+v, want path %d alone", on.name, r.Stalls, h.path)
		}
	}
}

// judge checks at the end that the other paths, whose flows come from kept, have noticed nothing.
func (h *hole) judge(kept []string, mends bool) {
	h.t.Helper()
	if err := h.audit.failure(); err != nil {
		h.t.Error(err)
	}
	now := h.flows()
	for _, port := range kept {
		if !slices.Contains(now, port) {
			h.t.Errorf("the connection from port %s has gone: there are %v", port, now)
		}
	}
	narrow := false
	for _, on := range []*netHost{h.a, h.b} {
		for _, p := range h.peers(on) {
			if mine := int(p.Path) == h.path; !mine && (p.Resets > 0 || p.MaxSegment > 0) {
				h.t.Errorf("%s: path %d was reset %d times, and has segments of %d bytes", on.name, p.Path, p.Resets, p.MaxSegment)
			} else {
				narrow = narrow || p.MaxSegment > 0
			}
		}
	}
	if mends && !narrow {
		h.t.Errorf("path %d has large segments", h.path)
	}
	for n := range h.socks[0] {
		for i := range h.socks {
			var ns [64]rds.Notice
			if got := h.socks[i][n].Notices(ns[:]); got > 0 && h.others(5000+n) {
				h.t.Errorf("port %d was notified of %+v", 5000+n, ns[:got])
			}
		}
	}
	var events string
	for _, on := range []*netHost{h.a, h.b} {
		events += on.run("bin/rdsctl events -columns event,lane -no-header")
	}
	name := regexp.QuoteMeta(ctl.LanePath{Path: uint8(h.path)}.String())
	if mends && !regexp.MustCompile(`(?m)^large packets do not pass +`+name+` *$`).MatchString(events) {
		h.t.Errorf("no event names path %d:\n%s", h.path, events)
	}
}
