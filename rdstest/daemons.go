package rdstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/test/loopback"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/embedded"
)

// Daemon is an rdsd in the test's process. Its methods may be called from any
// goroutine, with two exceptions: Stop and Start from one goroutine at a time, and
// methods with a testing.TB from the test's own goroutine.
type Daemon struct {
	addr netip.Addr
	opts embedded.Options
	log  *logBuffer

	mu     sync.Mutex
	daemon *embedded.Daemon // nil: stopped
}

// StartDaemons starts n daemons, 1 to 200, that know each other. Each has a loopback
// address of its own. They end with the test, and their log is shown if the test
// fails.
func StartDaemons(t testing.TB, n int) []*Daemon {
	t.Helper()
	return started(t, n, false)
}

// StartRDSTCP is StartDaemons with daemons that reach each other as they reach Linux
// kernels, by RDS/TCP: without RDMA, cookies and runs.
func StartRDSTCP(t testing.TB, n int) []*Daemon {
	t.Helper()
	return started(t, n, true)
}

func started(t testing.TB, n int, rdsTCP bool) []*Daemon {
	t.Helper()
	g, err := startGroup(n, rdsTCP)
	if err != nil {
		t.Fatalf("start daemons: %v", err)
	}
	t.Cleanup(func() {
		if err := g.end(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		for _, d := range g.daemons {
			t.Logf("log of daemon %v:\n%s", d.addr, d.log)
		}
	})
	return g.daemons
}

// Start starts daemons as StartDaemons does, where there is no test, as in an
// Example. stop ends them and returns what went wrong.
func Start(n int) (ds []*Daemon, stop func() error, err error) {
	g, err := startGroup(n, false)
	if err != nil {
		return nil, nil, err
	}
	return g.daemons, g.end, nil
}

// group is daemons that know each other.
type group struct {
	daemons []*Daemon
	net     *loopback.Network // has their addresses
	dir     string            // has their control sockets
}

func startGroup(n int, rdsTCP bool) (*group, error) {
	if n < 1 || n > 200 {
		return nil, fmt.Errorf("rdstest: %d daemons, want 1 to 200", n)
	}
	net, err := loopback.Reserve()
	if err != nil {
		return nil, err
	}
	g := &group{net: net}
	// Not t.TempDir: its name may be too long for a socket.
	if g.dir, err = os.MkdirTemp("", "rds"); err != nil {
		return nil, errors.Join(err, net.Close())
	}
	for i := range n {
		d := newDaemon(g.dir, net.At(i+1))
		if rdsTCP {
			d.opts.Set = map[string]string{"tcp.peers": "127.0.0.0/8"}
		}
		if err := d.start(); err != nil {
			return nil, errors.Join(err, g.end())
		}
		g.daemons = append(g.daemons, d)
	}
	return g, nil
}

// end stops the daemons for good.
func (g *group) end() (err error) {
	for _, d := range g.daemons {
		if e := d.Stop(); e != nil {
			err = errors.Join(err, fmt.Errorf("daemon %v: %w", d.addr, e))
		}
	}
	return errors.Join(err, os.RemoveAll(g.dir), g.net.Close())
}

func newDaemon(dir string, addr netip.Addr) *Daemon {
	d := &Daemon{addr: addr, log: &logBuffer{}}
	d.opts = embedded.Options{Listen: []netip.Addr{addr}, Socket: filepath.Join(dir, addr.String()), Log: slog.New(slog.NewTextHandler(d.log, nil))}
	return d
}

// Addr returns the address of the daemon, at which its sockets are bound.
func (d *Daemon) Addr() netip.Addr { return d.addr }

// Socket returns the path of the control socket, for rds.Options.Socket, and for
// RDSD_SOCKET of programs that the test starts.
func (d *Daemon) Socket() string { return d.opts.Socket }

// Open attaches a client. It is closed with the test.
func (d *Daemon) Open(t testing.TB) *rds.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := rds.Open(ctx, rds.Options{Daemon: d})
	if err != nil {
		t.Fatalf("daemon %v: %v", d.addr, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Bind binds a socket of c at the daemon's address. Port 0 takes a free port.
func (d *Daemon) Bind(t testing.TB, c *rds.Client, port uint16) *rds.Socket {
	t.Helper()
	s, err := c.Bind(netip.AddrPortFrom(d.addr, port))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Stop ends the daemon in order, as SIGTERM does, and waits for its end. Clients get
// rds.ErrDaemonGone, and peers lose their connection. It does nothing if the daemon
// is stopped.
func (d *Daemon) Stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.daemon == nil {
		return nil
	}
	defer func() { d.daemon = nil }()
	return d.daemon.Close()
}

// Start starts a stopped daemon again, at the same address and path. It is a new
// instance that knows nothing of the old one.
func (d *Daemon) Start(t testing.TB) {
	t.Helper()
	if err := d.start(); err != nil {
		t.Fatalf("daemon %v: %v", d.addr, err)
	}
}

func (d *Daemon) start() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.daemon == nil {
		d.daemon, err = embedded.Start(d.opts)
	}
	return err
}

// logBuffer keeps the end of a daemon's log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLog = 64 << 10

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > maxLog {
		l.buf.Next(l.buf.Len() / 2)
	}
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
