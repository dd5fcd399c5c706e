package soft

import (
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestSecureManyAtOnce: the connections of a peer that shows its certificate are not limited, however many paths there are.
func TestSecureManyAtOnce(t *testing.T) {
	ca := tlstest.NewCA(t)
	opt := secured(t, ca)
	opt.HandshakeRate = 10
	a, b := newHost(t, opt), newHost(t, opt)
	l, err := b.dev.Listen(loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 40 {
		if err := a.dev.Connect(a.newQP(attrs()), verbs.ConnectParam{Local: loopback, Remote: l.Addr()}); err != nil {
			t.Fatal(err)
		}
		run(t, "a request", func() bool { return len(a.ev)+len(b.ev) > 0 }, a, b)
		if len(b.ev) == 0 {
			t.Fatalf("connection %d: %+v", i, a.ev[0])
		}
		b.ev = nil
	}
	if n := b.dev.Stats().HandshakeLimited; n != 0 {
		t.Errorf("%d refused", n)
	}
}

// goodOf lets addr try n handshakes that succeed, one after the other. It returns how many were allowed.
func goodOf(l *limiter, now int64, addr netip.Addr, n int) (got int) {
	for range n {
		if l.allow(now, addr) {
			l.succeeded(now, addr)
			got++
		}
	}
	return got
}

// TestLimiterGood: handshakes that succeed have a rate of their own, which is beyond what peers need.
func TestLimiterGood(t *testing.T) {
	const second, each = int64(1e9), 64 // 4 lanes, 8 paths, from both ends
	l := newLimiter(200, atOnce)
	peer := netip.MustParseAddr("10.0.0.1")
	for restart := range int64(100) {
		got := 0
		for range each { // all at once
			if l.allow(restart*second, peer) {
				got++
			}
		}
		for range each {
			l.succeeded(restart*second, peer)
		}
		if got != each {
			t.Fatalf("planned restart %d: %d of %d", restart, got, each)
		}
	}
	at := 200 * second
	for i := range 1000 * each { // a thousand peers are back, and the CPU makes 200 handshakes a second
		at += second / 200
		if goodOf(l, at, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8 % 4), byte(i)}), 1) != 1 {
			t.Fatalf("after a storm: connection %d is refused", i)
		}
	}
	start, all := at+100*second, 0
	for at = start; at < start+60*second; at += second / 10 {
		all += goodOf(l, at, peer, 1000)
		if goodOf(l, at, netip.MustParseAddr("10.0.0.2"), 1) != 1 {
			t.Fatal("another host is refused")
		}
	}
	if most := goodAtOnce + atOnce + 60*(goodRate+200/40); all > most || all < most-goodRate {
		t.Errorf("a host without end: %d in a minute, want %d", all, most)
	}
}

// TestLimiterSpent: a host that has used up its good handshakes is not forgotten when room for others is made.
func TestLimiterSpent(t *testing.T) {
	l := newLimiter(200, atOnce)
	host := netip.MustParseAddr("fd00::1")
	if n := goodOf(l, 1, host, goodAtOnce); n != goodAtOnce || len(l.sources) != 1 {
		t.Fatalf("%d at once, %d sources", n, len(l.sources))
	}
	for i := range maxSources {
		goodOf(l, 1, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 1)
	}
	if n := goodOf(l, 1e9+1, netip.MustParseAddr("fd00:1::1"), 1); n != 1 || len(l.sources) != 2 {
		t.Fatalf("%d more, %d sources", n, len(l.sources))
	}
	if n := goodOf(l, 1e9+1, host, 1000); n > goodRate+atOnce {
		t.Errorf("%d a second later", n)
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter(200, atOnce)
	allowed := func(now int64, addr string, n int) (got int) {
		for range n {
			if l.allow(now, netip.MustParseAddr(addr)) {
				got++
			}
		}
		return got
	}
	for _, c := range []struct {
		at   int64
		addr string
		want int
	}{
		{1, "10.0.0.1", 128}, {1, "::ffff:10.0.0.1", 0}, {1, "10.0.0.2", 72},
		{1e9 + 1, "10.0.0.1", 5}, {2e9, "fd00::1", 128}, {3e9, "fd00::2", 5}, {4e9, "fd00:0:0:1::1", 128}, {100e9, "10.0.0.1", 128},
	} {
		if got := allowed(c.at, c.addr, 150); got != c.want {
			t.Errorf("%v at %d: %d, want %d", c.addr, c.at, got, c.want)
		}
	}
	l.succeeded(101e9, netip.MustParseAddr("10.0.0.9")) // forgotten meanwhile
	all := 0
	for i := range 20000 {
		all += allowed(200e9, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), 1)
	}
	if all != 200 || len(l.sources) > maxSources {
		t.Errorf("%d in all, %d sources", all, len(l.sources))
	}
	if allowed(500e9, "10.9.9.9", 1) != 1 || len(l.sources) > 1 {
		t.Errorf("%d sources after a pause", len(l.sources))
	}
}
