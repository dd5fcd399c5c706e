package rdsping

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

func TestPing(t *testing.T) {
	ds := rdstest.StartDaemons(t, 2)
	c := ds[0].Open(t)
	for _, to := range ds {
		var b bytes.Buffer
		sent, received, err := Run(t.Context(), c, Params{To: to.Addr(), From: ds[0].Addr(), Lane: 3, Count: 20, Interval: time.Microsecond, Timeout: 30 * time.Second}, &b)
		if sent != 20 || received != 20 || err != nil || strings.Count(b.String(), " usec\n") != 20 || strings.Contains(b.String(), "ERROR") {
			t.Errorf("%d sent, %d received, %v\n%s", sent, received, err, &b)
		}
	}
}

// Nobody answers: each ping is reported, and the sockets stay usable.
func TestLost(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	mute, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.255.255.2"), config.Default().Port).String()) // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	var b bytes.Buffer
	sent, received, err := Run(t.Context(), d.Open(t), Params{To: netip.MustParseAddr("127.255.255.2"), From: d.Addr(), Count: 12, Interval: time.Millisecond, Timeout: 5 * time.Millisecond}, &b)
	if sent != 12 || received != 0 || err != nil || strings.Count(b.String(), ": ERROR: no answer within 5ms\n") != 12 {
		t.Errorf("%d sent, %d received, %v\n%s", sent, received, err, &b)
	}
}

// A host that is not reached is reported with the reason, long before the time-out, and is
// tried again. A host that peers.allow forbids ends the series.
func TestNotReached(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	var b bytes.Buffer
	sent, received, err := Run(t.Context(), c, Params{To: netip.MustParseAddr("127.255.255.1"), From: d.Addr(), Count: 12, Interval: time.Millisecond, Timeout: time.Hour}, &b)
	if sent != 12 || received != 0 || err != nil || strings.Count(b.String(), ": ERROR: host not reached: no daemon listens there\n") != 12 {
		t.Errorf("%d sent, %d received, %v\n%s", sent, received, err, &b)
	}
	b.Reset()
	sent, _, err = Run(t.Context(), c, Params{To: netip.MustParseAddr("192.0.2.1"), From: d.Addr(), Interval: time.Millisecond, Timeout: time.Hour}, &b)
	if sent != 0 || !errors.Is(err, syscall.EACCES) || b.Len() != 0 {
		t.Errorf("forbidden: %d sent, %v\n%s", sent, err, &b)
	}
}

func TestEnds(t *testing.T) {
	d := rdstest.StartDaemons(t, 1)[0]
	c := d.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := writer(func() { cancel() })
	sent, received, err := Run(ctx, c, Params{To: d.Addr(), From: d.Addr(), Interval: time.Millisecond, Timeout: time.Minute}, w)
	if sent == 0 || received == 0 || err != nil {
		t.Errorf("%d sent, %d received, %v", sent, received, err)
	}
	if _, _, err := Run(t.Context(), c, Params{To: d.Addr(), From: netip.MustParseAddr("192.0.2.1")}, io.Discard); err == nil {
		t.Error("a foreign address could be bound")
	}
	w = func() { go d.Stop() }
	if _, _, err := Run(t.Context(), c, Params{To: d.Addr(), From: d.Addr(), Interval: time.Millisecond, Timeout: time.Minute}, w); !errors.Is(err, rds.ErrDaemonGone) {
		t.Errorf("the daemon ended: %v", err)
	}
}

// writer is an io.Writer that calls itself at each write.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

func TestParseInterval(t *testing.T) {
	for s, want := range map[string]time.Duration{"2": 2 * time.Second, "10ms": 10 * time.Millisecond, "10msec": 10 * time.Millisecond, "7us": 7 * time.Microsecond, "7usec": 7 * time.Microsecond} {
		if got, err := ParseInterval(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "ms", "-1", "1.5", "1h", "99999999999"} {
		if _, err := ParseInterval(s); err == nil {
			t.Errorf("%q is an interval", s)
		}
	}
}
