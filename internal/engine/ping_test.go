package engine

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/verbs"
)

// TestPingPeer: a ping describes the connection that it goes by, lane 0, and none when
// there is none.
func TestPingPeer(t *testing.T) {
	w := newWorld(t, 2, Config{})
	e := w.es[0]
	ping := func(host int) *Ping {
		t.Helper()
		x, err := e.Ping(hostAddr(host), 0, 0, make(chan struct{}, 1), func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := ping(1)
	w.run()
	if _, err := e.peers.peer(e.addrs.all[0], hostAddr(1), 1, nil); err != nil { // comes later in the list, and is down
		t.Fatal(err)
	}
	if i, ok := x.Peer(); !ok || i.Remote != hostAddr(1) || i.Lane != 0 || i.State != "up" {
		t.Errorf("known %v, %v lane %d is %s", ok, i.Remote, i.Lane, i.State)
	}
	x.End()
	if i, ok := ping(0).Peer(); ok {
		t.Errorf("a ping of this host goes by %+v", i)
	}
}

// TestPingSize: a ping of any size is sent whole, and answered.
func TestPingSize(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		w := newWorld(t, 2, Config{KernelPeer: func(netip.Addr) bool { return kernel }})
		e := w.es[0]
		before := uint64(0)
		for _, size := range []int{0, 1, 4096, ctl.MaxPingSize} {
			pong := make(chan struct{}, 1)
			x, err := e.Ping(hostAddr(1), 0, size, pong, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			w.run()
			if len(pong) != 1 || x.Lost() != "" {
				t.Errorf("kernel %v, %d bytes: %d answers, %q is lost", kernel, size, len(pong), x.Lost())
			}
			x.End()
			sent := e.peers.all[0].c.Stats().SendBytes
			if sent-before < uint64(size) {
				t.Errorf("kernel %v: %d bytes of %d were sent", kernel, sent-before, size)
			}
			before = sent
			if n := e.peers.all[0].ctls; n != 0 {
				t.Errorf("kernel %v, %d bytes: %d messages are left", kernel, size, n)
			}
		}
	}
}

// TestPingHandedOver: pings in progress end with an error when the engine is to stand still, once,
// and nothing of them is handed over.
func TestPingHandedOver(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.net.Faults.Unreachable = 1e6
	s := w.opSide(0, 10)
	e := w.es[0]
	var failed []error
	ping := func(host int) *Ping {
		x, err := e.Ping(hostAddr(host), 0, 0, make(chan struct{}, 1), func(err error) { failed = append(failed, err) })
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := []*Ping{ping(1), ping(0), ping(1)}
	x[2].End()
	w.still(0)
	if _, err := e.Ping(hostAddr(1), 0, 0, nil, nil); !errors.Is(err, errReplaced) {
		t.Errorf("a ping while the engine stands still: %v", err)
	}
	if want := []error{errReplaced, errReplaced}; !slices.Equal(failed, want) {
		t.Errorf("failed: %v", failed)
	}
	for _, x := range x { // as the daemon does, late
		x.End()
	}
	w.succeed(0, func(d verbs.Device) verbs.Device { return d }, Config{}, s)
	if e.addrs.all[0].ports.Get(x[0].sock.port) != nil {
		t.Error("the ping's port is in use")
	}
	w.run()
	if len(failed) != 2 {
		t.Errorf("failed: %v", failed)
	}
}
