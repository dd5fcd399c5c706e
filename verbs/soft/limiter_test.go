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
	for range 500 { // a peer that shows a certificate
		if allowed(101e9, "10.0.0.3", 1) != 1 {
			t.Fatal("handshakes that succeed count")
		}
		l.succeeded(netip.MustParseAddr("10.0.0.3"))
	}
	l.succeeded(netip.MustParseAddr("10.0.0.9")) // forgotten meanwhile
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
