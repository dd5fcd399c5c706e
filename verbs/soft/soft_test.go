package soft_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
	"github.com/rdsd/rdsd/verbs/verbstest"
)

// TestConformance runs the suite over two loopback addresses.
func TestConformance(t *testing.T) {
	for _, mode := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		t.Run([...]string{"CRC", "NoCRC"}[mode], func(t *testing.T) {
			t.Parallel()
			verbstest.Run(t, nil, func(t *testing.T) verbstest.Env { return openPair(t, mode) })
		})
	}
}

// TestConformanceThreads runs it with I/O threads.
func TestConformanceThreads(t *testing.T) {
	for _, mode := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		t.Run([...]string{"CRC", "NoCRC"}[mode], func(t *testing.T) {
			t.Parallel()
			verbstest.Run(t, nil, func(t *testing.T) verbstest.Env { return openPairWith(t, soft.Options{CRC: mode, Threads: 2}) })
		})
	}
}

// TestConformanceTLS runs it over TLS, and with I/O threads.
func TestConformanceTLS(t *testing.T) {
	cfg := tlstest.NewCA(t).Config(t, tlstest.IPs("127.0.0.1", "127.0.0.2"))
	for _, threads := range []int{0, 2} {
		opt := soft.Options{CRC: verbs.CRCOff, Threads: threads, HandshakeRate: 1 << 20, TLS: func(netip.Addr) (*tls.Config, error) { return cfg, nil }}
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			t.Parallel()
			verbstest.Run(t, nil, func(t *testing.T) verbstest.Env { return openPairWith(t, opt) })
		})
	}
}

func openPair(t *testing.T, mode verbs.CRCMode) verbstest.Env {
	return openPairWith(t, soft.Options{CRC: mode})
}

func openPairWith(t *testing.T, opt soft.Options) verbstest.Env {
	opt.MinCQE = 1
	var dev [2]*soft.Device
	for i := range dev {
		d, err := soft.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		dev[i] = d
	}
	deaf := false // the first device is not to hear the second
	return verbstest.Env{
		A: dev[0], B: dev[1],
		AddrA: netip.MustParseAddrPort("127.0.0.1:0"),
		AddrB: netip.MustParseAddrPort("127.0.0.2:0"),
		Dead:  deadAddr(t),
		Lose: func() func() {
			deaf = true
			return func() {
				deaf = false
				if err := dev[0].CutDeaf(); err != nil {
					t.Error(err)
				}
			}
		},
		Step: func() bool {
			if deaf {
				dev[0].Flush()
				if dev[1].Progress() {
					return true
				}
				unix.Poll([]unix.PollFd{{Fd: int32(dev[1].FD()), Events: unix.POLLIN}}, 5)
				return false
			}
			if a, b := dev[0].Progress(), dev[1].Progress(); a || b {
				return true
			}
			fds := []unix.PollFd{
				{Fd: int32(dev[0].FD()), Events: unix.POLLIN},
				{Fd: int32(dev[1].FD()), Events: unix.POLLIN},
			}
			unix.Poll(fds, 5)
			return false
		},
	}
}

// deadAddr is an address that was listened on a moment ago.
func deadAddr(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}
