package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/service"
	"golang.org/x/sys/unix"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// supervisedSockets are sockets as a supervisor opens them.
func supervisedSockets(t *testing.T, path string) (s *service.Sockets, port netip.AddrPort) {
	t.Helper()
	u, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	u.SetUnlinkOnClose(false)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(anyPort))
	if err != nil {
		t.Fatal(err)
	}
	return &service.Sockets{Control: u, Peers: []*net.TCPListener{l}}, l.Addr().(*net.TCPAddr).AddrPort()
}

// TestSupervisedSockets: what the supervisor passed is taken and not opened again. What the
// settings do not name is an error.
func TestSupervisedSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, at := supervisedSockets(t, path)
	ls := newListeners(s)
	defer ls.close()
	if s.Control != nil || s.Peers != nil {
		t.Error("the sockets have two owners")
	}
	if err := ls.allTaken(); err == nil || !strings.Contains(err.Error(), path+", "+at.String()) {
		t.Errorf("nothing is taken: %v", err)
	}
	if err := ls.openControl(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ls.listen(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := ls.allTaken(); err != nil {
		t.Error(err)
	}
	if _, err := ls.listen(context.Background(), at); err == nil {
		t.Error("one address has two sockets")
	}
}

// TestMetricsInUse: the error of an address that is in use names the setting.
func TestMetricsInUse(t *testing.T) {
	l, err := net.Listen("tcp", anyPort.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := opening{Daemon: &Daemon{listeners: newListeners(nil)}, cfg: &config.Config{}}
	o.cfg.Metrics.Listen = l.Addr().(*net.TCPAddr).AddrPort()
	if err := o.openMetrics(); !errors.Is(err, unix.EADDRINUSE) || !strings.HasPrefix(err.Error(), "metrics.listen: ") {
		t.Errorf("%v", err)
	}
}
