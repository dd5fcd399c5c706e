package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/internal/test/loopback"
)

// host is a daemon process with addresses of its own. It is killed at the end of its test.
type host struct {
	addrs []netip.Addr
	dir   string
	sock  string
	args  []string

	*child.Process // nil before it has started
}

// addresses are the addresses that newAddress returns. They are from networks that this process
// has reserved, or from the network in envNet.
var addresses = struct {
	sync.Mutex
	next netip.Addr // 254 others of its network are behind it; the zero value: there is no network yet
}{}

// newAddress returns an address that nobody else has.
func newAddress() netip.Addr {
	a := &addresses
	a.Lock()
	defer a.Unlock()
	switch {
	case !a.next.IsValid() && os.Getenv(envNet) != "":
		a.next = netip.MustParseAddr(os.Getenv(envNet))
	case !a.next.IsValid(), last(a.next) == 254 && os.Getenv(envNet) == "":
		net, err := loopback.Reserve() // until the process ends
		if err != nil {
			panic(err)
		}
		a.next = net.First()
	}
	for a.next = a.next.Next(); last(a.next) == 0 || last(a.next) == 255; {
		a.next = a.next.Next()
	}
	return a.next
}

func last(a netip.Addr) byte { return a.As4()[3] }

// newHost starts a daemon at addrs, or at an address of its own if there are none. The daemon
// ends with t.
func newHost(t *testing.T, addrs []netip.Addr, args ...string) *host {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []netip.Addr{newAddress()}
	}
	dir, err := os.MkdirTemp("", "rds")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{addrs: addrs, dir: dir, sock: dir + "/s", args: args}
	t.Cleanup(func() {
		h.end(t)
		os.RemoveAll(dir)
	})
	h.start(t)
	return h
}

func (h *host) addr() netip.Addr              { return h.addrs[0] }
func (h *host) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(h.addr(), port) }

// start runs the daemon and waits until it serves.
func (h *host) start(t *testing.T) {
	t.Helper()
	args := []string{"-socket", h.sock}
	for _, a := range h.addrs {
		args = append(args, "-listen", a.String())
	}
	args = append(args, strings.Fields(os.Getenv(envArgs))...)
	cmd := exec.Command(filepath.Join(bin, "rdsd"), append(args, h.args...)...)
	cmd.Env = child.Env()
	p, err := child.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	h.Process = p
	if !h.Until(patience, func() bool { return h.Stderr.Has("msg=serving") }) {
		t.Fatalf("daemon %v does not serve:\n%s", h.addrs, &h.Stderr)
	}
}

// pause stops the daemon with a signal. Resume continues it.
func (h *host) pause(t *testing.T) {
	t.Helper()
	ok(t, "pause", h.Pause())
	t.Cleanup(h.Resume)
}

// kill kills the daemon.
func (h *host) kill(t *testing.T) {
	t.Helper()
	h.Signal(syscall.SIGKILL)
	h.wait(t)
}

func (h *host) wait(t *testing.T) {
	t.Helper()
	if !h.Wait(patience) {
		t.Fatalf("daemon %v does not end", h.addrs)
	}
}

// end ends the daemon in an orderly way and checks how it ended.
func (h *host) end(t *testing.T) {
	if h.Process == nil {
		return
	}
	if h.Alive() {
		h.Resume()
		h.Signal(syscall.SIGTERM)
		h.wait(t)
		if code := h.Code(); code != 0 {
			t.Errorf("daemon %v: status %d after SIGTERM", h.addrs, code)
		}
	}
	if slices.ContainsFunc([]string{"panic", "fatal error", "operation state"}, h.Stderr.Has) {
		t.Errorf("daemon %v:\n%s", h.addrs, h.Stderr.Tail())
	}
}

// counter reads a counter from the daemon's statistics mapping.
func (h *host) counter(t *testing.T, c stats.Counter) uint64 {
	t.Helper()
	m, err := stats.Open(h.sock + ".stats")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return m.Load(int(c))
}

// counted waits until a counter has risen by n since from.
func (h *host) counted(t *testing.T, c stats.Counter, from, n uint64) {
	t.Helper()
	eventually(t, c.String(), func() error {
		if got := h.counter(t, c); got < from+n {
			return fmt.Errorf("%d, want %d", got, from+n)
		}
		return nil
	})
}

// ask sends one request to the daemon's control service.
func (h *host) ask(t *testing.T, r ctl.Request) *ctl.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := ipc.ResolveDial(ctx, h.sock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "conformance"}, nil); err != nil {
		t.Fatal(err)
	}
	r.Schema = ctl.Schema
	req, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.CallJSON(req)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := ctl.Parse(answer, r.Kind)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// reset resets the connections to a peer as rdsctl does.
func (h *host) reset(t *testing.T, to *host) {
	t.Helper()
	h.ask(t, ctl.Request{Kind: ctl.KindPeerReset, Addr: to.addr()})
}

// peer returns the daemon's answer about a connection. It returns false if there is none.
func (h *host) peer(t *testing.T, to netip.Addr, lane uint8) (ctl.PeerInfo, bool) {
	t.Helper()
	for _, p := range h.ask(t, ctl.Request{Kind: ctl.KindPeers}).Peers {
		if p.Remote == to && p.Lane == lane {
			return p, true
		}
	}
	return ctl.PeerInfo{}, false
}

// socket returns the daemon's answer about a bound socket. It returns false if there is none.
func (h *host) socket(t *testing.T, at netip.AddrPort) (ctl.SocketInfo, bool) {
	t.Helper()
	for _, s := range h.ask(t, ctl.Request{Kind: ctl.KindSockets}).Sockets {
		if s.Addr == at.Addr() && s.Port == at.Port() {
			return s, true
		}
	}
	return ctl.SocketInfo{}, false
}
