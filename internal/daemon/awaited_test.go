package daemon

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
)

// TestAwaitedAddress: an address that the host does not have is listened on all the same, and is warned of. One that it
// has is not.
func TestAwaitedAddress(t *testing.T) {
	elsewhere, elsewhere6 := netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")
	ls := newListeners(nil)
	defer ls.close()
	for _, a := range []netip.Addr{elsewhere, elsewhere6, anyPort.Addr()} {
		l, err := ls.listen(context.Background(), netip.AddrPortFrom(a, 0))
		if err != nil {
			if a == elsewhere6 {
				t.Logf("no IPv6: %v", err)
				continue
			}
			t.Fatal(err)
		}
		if got := l.Addr().String(); !strings.Contains(got, a.String()) {
			t.Errorf("listens on %s, not on %v", got, a)
		}
		l.Close()
	}
	cfg := config.Default()
	if w := awaited(&cfg); len(w) != 0 {
		t.Errorf("warnings of loopback: %q", w)
	}
	cfg.Listen = append(cfg.Listen, elsewhere)
	cfg.Metrics.Listen = netip.AddrPortFrom(elsewhere, 9464)
	w := awaited(&cfg)
	if len(w) != 2 || !strings.HasPrefix(w[0], "listen: this host does not have the address 192.0.2.77;") || !strings.HasPrefix(w[1], "metrics.listen: ") {
		t.Errorf("warnings %q", w)
	}
}
