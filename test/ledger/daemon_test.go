package ledger

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/child"
	"github.com/rdsd/rdsd/test/ledger/book"
	"github.com/rdsd/rdsd/test/ledger/plan"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// patience is much longer than any step takes, even on a busy machine.
const patience = 2 * time.Minute

// host is a daemon.
type host struct {
	net  *network
	book *book.Log
	addr netip.Addr
	sock string
	args []string

	// mu is locked to end and start the daemon, and read-locked to disturb it in another way.
	mu      sync.RWMutex
	daemon  *daemon
	endings int       // how often it was ended
	base    resources // of the daemon without clients
	logs    []string  // logs of daemons that have ended

	upgrading sync.Mutex // held while an upgrade is in progress
}

// newHosts prepares the daemons of a campaign, with their files in dir.
func newHosts(t *testing.T, net *network, p *plan.Plan, log *book.Log, dir string) (hosts []*host) {
	t.Helper()
	ca := tlstest.NewCA(t)
	for i, a := range p.Hosts {
		d := filepath.Join(dir, fmt.Sprintf("host%d", i+1))
		if err := os.MkdirAll(filepath.Join(d, "tls"), 0o755); err != nil {
			t.Fatal(err)
		}
		h := &host{net: net, book: log, addr: a, sock: filepath.Join(d, "s")}
		h.args = []string{"-socket", h.sock, "-listen", a.String(), "-quota-overrides", fmt.Sprintf("uid=%d operations=%d", os.Getuid(), p.Operations),
			"-recv-hard-cap", strconv.Itoa(p.HardCap), "-peers-paths", strconv.Itoa(p.Paths), "-io-threads", p.IOThreads}
		switch {
		case p.TLS:
			ca.Write(t, filepath.Join(d, "tls"), tlstest.IPs(a.String()))
			tls := filepath.Join(d, "tls")
			h.args = append(h.args, "-tls-mode", "on", "-tls-cert", tls+"/cert.pem", "-tls-key", tls+"/key.pem", "-tls-ca", tls+"/ca.pem")
		case p.CRC:
			h.args = append(h.args, "-crc", "on")
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// start runs the daemon and waits until it serves.
func (h *host) start() error {
	d, err := h.net.startDaemon(filepath.Join(programs, "rdsd"), h.args...)
	if err != nil {
		return err
	}
	if h.daemon != nil {
		h.logs = append(h.logs, h.daemon.log())
	}
	h.daemon = d
	if !d.Until(patience, func() bool { return d.Stderr.Has("msg=serving") }) {
		return fmt.Errorf("daemon %v does not serve:\n%s", h.addr, d.log())
	}
	u, err := h.upgrades() // shows that its engine turns
	if err != nil {
		return err
	}
	d.follow(u.PID)
	h.base = resourcesOf(u.PID)
	return nil
}

// restart ends the daemon with a signal, and starts it again after the time away.
func (h *host) restart(s syscall.Signal, away time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restartLocked(s, away)
}

// killStopped stops the daemon before it kills it. In between, its peers send messages that it
// does not acknowledge.
func (h *host) killStopped(stopped, away time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.book.Write(book.Record{Kind: book.Fault, Text: string(plan.KillStopped), Peer: netip.AddrPortFrom(h.addr, 0), B: uint64(stopped)})
	h.daemon.signal(syscall.SIGSTOP)
	time.Sleep(stopped)
	return h.restartLocked(syscall.SIGKILL, away)
}

func (h *host) restartLocked(s syscall.Signal, away time.Duration) error {
	h.endings++
	at := netip.AddrPortFrom(h.addr, 0)
	h.book.Write(book.Record{Kind: book.Ending, Peer: at})
	err := h.stop(s)
	h.book.Write(book.Record{Kind: book.Ended, Peer: at})
	if err != nil {
		return err
	}
	time.Sleep(away) // the host has no daemon for this time
	if err := h.start(); err != nil {
		return err
	}
	h.book.Write(book.Record{Kind: book.Serving, Peer: at})
	return nil
}

// stop ends the daemon and checks how it ended.
func (h *host) stop(s syscall.Signal) error {
	if !h.daemon.Alive() {
		return fmt.Errorf("daemon %v ended by itself:\n%s", h.addr, child.Tail(h.daemon.log()))
	}
	end := h.daemon.end
	if s == syscall.SIGKILL {
		end = h.daemon.kill
	}
	if !end(patience) {
		return fmt.Errorf("daemon %v does not end:\n%s", h.addr, child.Tail(h.daemon.log()))
	}
	log := h.daemon.log()
	if code := h.daemon.Code(); s == syscall.SIGTERM && code != 0 {
		return fmt.Errorf("daemon %v ended with status %d:\n%s", h.addr, code, child.Tail(log))
	}
	for line := range strings.Lines(log) {
		for _, bad := range []string{"panic", "fatal error", "level=ERROR", "broke the rules", "operation state"} {
			// Who asked for an upgrade judges why it failed.
			if strings.Contains(line, bad) && !strings.Contains(line, "the engine does not turn") && !strings.Contains(line, "upgrade failed") {
				return fmt.Errorf("daemon %v: %s", h.addr, line)
			}
		}
	}
	return nil
}

// keepLog writes what all daemons of the host have logged, for people who read it.
func (h *host) keepLog(path string) {
	all := strings.Join(h.logs, "")
	if h.daemon != nil {
		all += h.daemon.log()
	}
	_ = os.WriteFile(path, []byte(all), 0o600)
}

// ctl runs rdsctl with the daemon.
func (h *host) ctl(args ...string) (string, error) {
	out, err := exec.Command(filepath.Join(programs, "rdsctl"), append([]string{"-socket", h.sock}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("rdsctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}
