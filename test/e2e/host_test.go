package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/rds"
)

// host is a daemon of a test, with addresses of its own.
type host struct {
	t      *testing.T
	addrs  []netip.Addr
	dir    string
	sock   string
	args   []string
	env    []string
	prog   string
	byFile bool     // its configuration file has its addresses
	under  []string // a command that runs the daemon: the daemon's command line follows it

	*process           // the first daemon
	serving  int       // process id of the daemon that serves after a planned restart; 0: the first one
	dies     bool      // the first daemon is killed when another one has its state
	base     resources // before the first client
	expected []string  // parts of the warnings that the test provokes
}

// option changes a host before it starts.
type option func(*host)

func withArgs(args ...string) option   { return func(h *host) { h.args = append(h.args, args...) } }
func under(cmd ...string) option       { return func(h *host) { h.under = cmd } }
func withProgram(name string) option   { return func(h *host) { h.prog = name } }
func withEnv(env ...string) option     { return func(h *host) { h.env = append(h.env, env...) } }
func withAddress(a netip.Addr) option  { return func(h *host) { h.addrs = append(h.addrs, a) } }
func byFile() option                   { return func(h *host) { h.byFile = true } }
func (h *host) addr() netip.Addr       { return h.addrs[0] }
func (h *host) at(p uint16) addrPort   { return netip.AddrPortFrom(h.addr(), p) }
func (h *host) logged(text string) int { return strings.Count(h.log(), text) }

type addrPort = netip.AddrPort

// newHost starts a daemon. At the end of the test, the daemon must have nothing left of its
// clients, end in an orderly way, and leave no file.
func newHost(t *testing.T, options ...option) *host {
	t.Helper()
	h := &host{t: t, prog: "rdsd"}
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	h.dir, h.sock = dir, dir+"/s"
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, o := range options {
		o(h)
	}
	if len(h.addrs) == 0 {
		h.addrs = []netip.Addr{newAddress(t)}
	}
	h.start()
	t.Cleanup(h.Kill)
	t.Cleanup(h.finish)
	return h
}

func newHosts(t *testing.T, n int, options ...option) []*host {
	t.Helper()
	var hosts []*host
	for range n {
		hosts = append(hosts, newHost(t, options...))
	}
	return hosts
}

// start runs the daemon and waits until it serves.
func (h *host) start() {
	h.t.Helper()
	args := []string{"-socket", h.sock}
	for _, a := range h.addrs {
		if !h.byFile {
			args = append(args, "-listen", a.String())
		}
	}
	args = append(args, strings.Fields(os.Getenv(envArgs))...)
	cmd := append(append(slices.Clone(h.under), program(h.prog)), append(args, h.args...)...)
	h.process, h.serving = spawn(h.t, h.env, cmd[0], cmd[1:]...), 0
	h.saw("msg=serving")
	h.base = resourcesOf(h.pid())
}

// restart kills the daemon and starts it again.
func (h *host) restart() {
	h.t.Helper()
	h.checkLog()
	h.Kill()
	h.start()
}

// finish ends the daemon in an orderly way and checks what it leaves.
func (h *host) finish() {
	t := h.t
	if !h.Alive() {
		t.Errorf("daemon %v ended by itself, status %d:\n%s", h.addrs, h.Code(), h.log())
		return
	}
	if !t.Failed() {
		h.settled()
	}
	h.stop()
	if t.Failed() {
		t.Logf("daemon %v:\n%s", h.addrs, h.Stderr.Tail())
	}
}

// stop ends the daemon as an operator does.
func (h *host) stop() {
	t := h.t
	t.Helper()
	h.Signal(syscall.SIGTERM)
	if code := h.wait(); code != 0 {
		t.Errorf("daemon %v: status %d after SIGTERM", h.addrs, code)
	}
	if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
		t.Errorf("daemon %v left %v (%v)", h.addrs, left, err)
	}
	h.checkLog()
}

// checkLog looks for lines that no log may have.
func (h *host) checkLog() {
	h.t.Helper()
	for line := range strings.SplitSeq(h.log(), "\n") {
		for _, bad := range []string{"panic", "DATA RACE", "operation state", "fatal error", "level=ERROR"} {
			// The engine's thread may starve on a busy machine. If it stands still for another
			// reason, the test does, too.
			if strings.Contains(line, bad) && !h.expects(line) && !strings.Contains(line, "the engine does not turn") {
				h.t.Errorf("daemon %v: %s", h.addrs, line)
			}
		}
		// What a host turns away is another one's fault: whoever provokes it looks for it.
		turned := strings.Contains(line, "connection refused") || strings.Contains(line, "request rejected")
		if strings.Contains(line, "level=WARN") && !turned && !h.expects(line) && !strings.Contains(line, "the engine turns again") {
			h.t.Errorf("daemon %v: unexpected warning: %s", h.addrs, line)
		}
	}
}

func (h *host) expects(line string) bool {
	for _, e := range h.expected {
		if strings.Contains(line, e) {
			return true
		}
	}
	return false
}

// gauge reads a counter from the daemon's statistics mapping.
func (h *host) gauge(c stats.Counter) uint64 {
	h.t.Helper()
	m, err := stats.Open(h.sock + ".stats")
	if err != nil {
		h.t.Fatal(err)
	}
	defer m.Close()
	return m.Load(int(c))
}

// published waits until the statistics mapping shows everything that the daemon had done before
// the call. That is when its engine sleeps, or has published twice. The first time may be due to
// its waking up.
func (h *host) published() {
	h.t.Helper()
	m, err := stats.Open(h.sock + ".stats")
	if err != nil {
		h.t.Fatal(err)
	}
	defer m.Close()
	last, beats := m.Snapshot().Beat, 0
	eventually(h.t, "statistics", func() error {
		s := m.Snapshot()
		if s.Beat != last {
			last = s.Beat
			beats++
		}
		if s.State != stats.Sleeping && beats < 2 {
			return fmt.Errorf("published %d times", beats)
		}
		return nil
	})
}

// settled waits until the daemon has nothing of any client.
func (h *host) settled() {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("daemon %v", h.addrs), func() error {
		for _, c := range []stats.Counter{stats.Clients, stats.Sockets, stats.Regions, stats.RegisteredBytes, stats.SharedBytes,
			stats.HeldBytes, stats.QueuedMessages, stats.QueuedBytes, stats.OpsOutstanding, stats.CongestedPorts} {
			if n := h.gauge(c); n != 0 {
				return fmt.Errorf("holds %d %s", n, c)
			}
		}
		return h.base.compare(resourcesOf(h.pid()), h.connections())
	})
}

// connections counts the TCP sockets to peers.
func (h *host) connections() int {
	n := int(h.gauge(stats.PeersUp))
	if r, err := h.ask(ctl.Request{Kind: ctl.KindPeers}); err == nil {
		for _, p := range r.Peers {
			n += max(p.TCPLanes-1, 0)
		}
	}
	return n
}

// open opens a client in this process. It is closed at the end of the test.
func (h *host) open() *rds.Client {
	h.t.Helper()
	return h.openWith(rds.Options{})
}

func (h *host) openWith(o rds.Options) *rds.Client {
	h.t.Helper()
	o.Socket = h.sock
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := rds.Open(ctx, o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// bind binds a socket to a port of the daemon's first address. Port 0 takes any.
func (h *host) bind(c *rds.Client, port uint16) *rds.Socket {
	h.t.Helper()
	return bind(h.t, c, h.at(port))
}

func bind(t *testing.T, c *rds.Client, at addrPort) *rds.Socket {
	t.Helper()
	s, err := c.Bind(at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addrPortOf(a netip.Addr, port uint16) addrPort { return netip.AddrPortFrom(a, port) }
