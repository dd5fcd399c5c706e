package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/stats"
)

// host is a daemon process with addresses of its own. It dies with the test.
type host struct {
	addrs []netip.Addr
	dir   string
	sock  string
	args  []string

	cmd    *exec.Cmd
	log    *output
	exited chan struct{}
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// starts are run on one thread that never ends: the kernel sends the
// parent-death signal when the thread ends that started the child.
var starts = make(chan func())

func startProcesses() {
	runtime.LockOSThread()
	for f := range starts {
		f()
	}
}

// network is this process's, drawn so that test processes side by side differ, or
// what envNet says.
var network = struct {
	sync.Mutex
	next uint32
}{next: firstAddress()}

func firstAddress() uint32 {
	if net := os.Getenv(envNet); net != "" {
		a := netip.MustParseAddr(net).As4()
		return binary.BigEndian.Uint32(a[:])
	}
	return 127<<24 | uint32(128+rand.IntN(120))<<16 | uint32(rand.IntN(256))<<8
}

// newAddress returns an address nobody has.
func newAddress() netip.Addr {
	network.Lock()
	defer network.Unlock()
	network.next++
	if network.next&0xff == 0 || network.next&0xff == 0xff {
		network.next++
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, network.next)))
}

// newHost starts a daemon at the addresses, at one of its own without any. It
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
func (h *host) signal(s syscall.Signal)       { _ = h.cmd.Process.Signal(s) }
func (h *host) stderr() string                { return h.log.String() }
func (h *host) running() bool                 { return h.cmd != nil }

// start runs the daemon and waits until it serves.
func (h *host) start(t *testing.T) {
	t.Helper()
	args := []string{"-socket", h.sock}
	for _, a := range h.addrs {
		args = append(args, "-listen", a.String())
	}
	args = append(args, strings.Fields(os.Getenv(envArgs))...)
	h.cmd = exec.Command(filepath.Join(bin, "rdsd"), append(args, h.args...)...)
	h.cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=", "RDSD_SOCKET=")
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	h.log = &output{}
	h.cmd.Stderr = h.log
	started := make(chan error)
	starts <- func() { started <- h.cmd.Start() }
	if err := <-started; err != nil {
		h.cmd = nil
		t.Fatal(err)
	}
	h.exited = make(chan struct{})
	go func(c *exec.Cmd, done chan struct{}) {
		_ = c.Wait()
		close(done)
	}(h.cmd, h.exited)
	deadline := time.After(patience)
	for !strings.Contains(h.stderr(), "msg=serving") {
		select {
		case <-h.exited:
			t.Fatalf("daemon %v ended:\n%s", h.addrs, h.stderr())
		case <-deadline:
			t.Fatalf("daemon %v does not serve:\n%s", h.addrs, h.stderr())
		case <-time.After(time.Millisecond): // between two looks
		}
	}
}

// pause stops the daemon where it is; resume has it go on.
func (h *host) pause(t *testing.T) {
	t.Helper()
	h.signal(syscall.SIGSTOP)
	t.Cleanup(h.resume)
	eventually(t, "stopped", func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.cmd.Process.Pid))
		if err != nil {
			return err
		}
		// State is behind the name, which may have spaces.
		state := strings.TrimSpace(string(b[bytes.LastIndexByte(b, ')')+1:]))[:1]
		return errOf(state != "T", "state %s", state)
	})
}

func (h *host) resume() { h.signal(syscall.SIGCONT) }

// kill ends the daemon without warning.
func (h *host) kill(t *testing.T) {
	t.Helper()
	h.signal(syscall.SIGKILL)
	h.wait(t)
}

func (h *host) wait(t *testing.T) {
	t.Helper()
	select {
	case <-h.exited:
	case <-time.After(patience):
		t.Fatalf("daemon %v does not end", h.addrs)
	}
}

// end is the daemon's orderly end, which must be clean.
func (h *host) end(t *testing.T) {
	if !h.running() {
		return
	}
	select {
	case <-h.exited:
	default:
		h.signal(syscall.SIGCONT)
		h.signal(syscall.SIGTERM)
		h.wait(t)
		if code := h.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("daemon %v: status %d after SIGTERM", h.addrs, code)
		}
	}
	for _, bad := range []string{"panic", "fatal error", "operation state"} {
		if strings.Contains(h.stderr(), bad) {
			t.Errorf("daemon %v:\n%s", h.addrs, tail(h.stderr()))
			return
		}
	}
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "... " + s[len(s)-most:]
	}
	return s
}

// counter reads the daemon's statistics mapping.
func (h *host) counter(t *testing.T, c stats.Counter) uint64 {
	t.Helper()
	m, err := stats.Open(h.sock + ".stats")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return m.Load(int(c))
}

// counted waits until a counter has risen by at least n since from.
func (h *host) counted(t *testing.T, c stats.Counter, from, n uint64) {
	t.Helper()
	eventually(t, c.String(), func() error {
		if got := h.counter(t, c); got < from+n {
			return fmt.Errorf("%d, want %d", got, from+n)
		}
		return nil
	})
}

// ask puts one question to the daemon's control service.
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

// reset breaks the connections to a peer off, as its operator can.
func (h *host) reset(t *testing.T, to *host) {
	t.Helper()
	h.ask(t, ctl.Request{Kind: ctl.KindPeerReset, Addr: to.addr()})
}

// peer is what the daemon says of a connection; false: there is none.
func (h *host) peer(t *testing.T, to netip.Addr, lane uint8) (ctl.PeerInfo, bool) {
	t.Helper()
	for _, p := range h.ask(t, ctl.Request{Kind: ctl.KindPeers}).Peers {
		if p.Remote == to && p.Lane == lane {
			return p, true
		}
	}
	return ctl.PeerInfo{}, false
}

// socket is what the daemon says of a bound socket; false: there is none.
func (h *host) socket(t *testing.T, at netip.AddrPort) (ctl.SocketInfo, bool) {
	t.Helper()
	for _, s := range h.ask(t, ctl.Request{Kind: ctl.KindSockets}).Sockets {
		if s.Addr == at.Addr() && s.Port == at.Port() {
			return s, true
		}
	}
	return ctl.SocketInfo{}, false
}
