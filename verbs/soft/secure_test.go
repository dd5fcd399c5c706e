package soft

import (
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// secured is Options with TLS by certificates of ca for these addresses.
func secured(t testing.TB, ca *tlstest.CA, edit ...func(*tlstest.Cert)) Options {
	cfg := ca.Config(t, append([]func(*tlstest.Cert){tlstest.IPs("127.0.0.1", "127.0.0.2")}, edit...)...)
	return Options{HandshakeRate: 1 << 20, TLS: func(netip.Addr) (*tls.Config, error) { return cfg, nil }}
}

// securePair is two hosts linked with TLS.
func securePair(t testing.TB, at verbs.QPInitAttr, edit func(i int, o *Options)) (a, b *host) {
	t.Helper()
	ca := tlstest.NewCA(t)
	var h [2]*host
	for i := range h {
		opt := secured(t, ca)
		if edit != nil {
			edit(i, &opt)
		}
		h[i] = newHost(t, opt)
	}
	link(t, h[0], h[1], at, at)
	return h[0], h[1]
}

// guarded is what bytes on their way are guarded by.
type guarded int

const (
	bare   guarded = iota
	summed         // checksums
	sealed         // TLS
)

func (g guarded) String() string { return [...]string{"bare", "summed", "sealed"}[g] }

// guardedPair is two hosts linked so.
func guardedPair(t testing.TB, how guarded, at verbs.QPInitAttr, opt Options) (a, b *host) {
	at.CRC = verbs.CRCOff
	switch how {
	case summed:
		at.CRC = verbs.CRCOn
	case sealed:
		return securePair(t, at, func(_ int, o *Options) {
			with := *o
			*o = opt
			o.TLS, o.HandshakeRate = with.TLS, with.HandshakeRate
		})
	}
	a, b = newHost(t, opt), newHost(t, opt)
	link(t, a, b, at, at)
	return a, b
}

// TestSecureTraffic: everything arrives whole, the tap sees it plain, nothing of
// it is on the wire.
func TestSecureTraffic(t *testing.T) {
	for _, crc := range []verbs.CRCMode{verbs.CRCOn, verbs.CRCOff} {
		at := attrs()
		at.CRC = crc
		rec := [2]*recorder{{}, {}}
		a, b := securePair(t, at, func(i int, o *Options) { o.Tap = rec[i] })
		if s := a.qp.(*qp).TLS(); !strings.HasPrefix(s, "TLS_") {
			t.Errorf("suite %q", s)
		}
		fill(a.mem, 1)
		const big = 1500000
		for _, n := range []int{1, 100, 16379, 16384, 40000, 300000} {
			b.recv(verbs.RecvWR{SGL: b.sge(0, n)})
			a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, n)})
			a.take(1, b)
			b.take(1, a)
			if !slices.Equal(a.mem[:n], b.mem[:n]) {
				t.Fatalf("%d bytes differ", n)
			}
			clear(b.mem[:n])
		}
		a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, SGL: a.sge(0, big), RKey: b.mr.RKey(), RemoteAddr: testIOVA},
			verbs.SendWR{Op: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: a.sge(2<<20, big), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
		if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
			t.Fatal(wc[0].Status)
		}
		if !slices.Equal(a.mem[:big], b.mem[:big]) || !slices.Equal(a.mem[:big], a.mem[2<<20:2<<20+big]) {
			t.Fatal("data differs")
		}
		run(t, "same streams", func() bool {
			return slices.Equal(rec[0].out, rec[1].in) && slices.Equal(rec[0].in, rec[1].out)
		}, a, b)
		if !strings.HasPrefix(string(rec[0].out), "MPA ID Req") {
			t.Errorf("tap: %q", rec[0].out[:20])
		}
	}
}

// TestSecureEnds: an orderly end is seen as one, and a Terminate arrives.
func TestSecureEnds(t *testing.T) {
	a, b := securePair(t, attrs(), nil)
	a.qp.Disconnect()
	if e := b.event(a); e.Type != verbs.CMDisconnected || !errors.Is(e.Err, verbs.ErrEnded) {
		t.Fatalf("%v %v", e.Type, e.Err)
	}
	a, b = securePair(t, attrs(), nil)
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, 8), RKey: b.mr.RKey() + 1, RemoteAddr: testIOVA})
	if e := a.event(b); e.Type != verbs.CMDisconnected || !strings.Contains(e.Err.Error(), "terminated by the peer") {
		t.Fatalf("%v %v", e.Type, e.Err)
	}
}

// TestSecureBlocked: a peer that does not read gets everything when it does.
func TestSecureBlocked(t *testing.T) {
	a, b := securePair(t, attrs(), nil)
	q := a.qp.(*qp)
	unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10)
	fill(a.mem, 3)
	a.send(verbs.SendWR{Op: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: a.sge(0, memSize), RKey: b.mr.RKey(), RemoteAddr: testIOVA})
	run(t, "a blocked stream", func() bool { return q.events&unix.EPOLLOUT != 0 && q.tls.sealed != nil }, a)
	a.take(1, b)
	run(t, "the data", func() bool { return slices.Equal(a.mem, b.mem) }, a, b)
	if q.tls.sealed != nil || b.qp.(*qp).tls.rest != nil {
		t.Error("buffers are kept")
	}
}

// TestSecureBadRecord: what is not a record of the stream ends the connection,
// by name, and only that one.
func TestSecureBadRecord(t *testing.T) {
	for _, c := range []struct {
		name string
		rec  func(s *tls13.Session) []byte
		want error
	}{
		{"forged", func(*tls13.Session) []byte { return append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...) }, tls13.ErrMAC},
		{"short", func(*tls13.Session) []byte { return []byte{23, 3, 3, 0, 1, 0} }, tls13.ErrMAC},
		{"oversized", func(*tls13.Session) []byte { return []byte{23, 3, 3, 0x41, 1} }, tls13.ErrOverflow},
		{"plain MPA", func(*tls13.Session) []byte { return []byte("MPA ID Req Frame") }, tls13.ErrType},
		{"plain alert", func(*tls13.Session) []byte { return []byte{21, 3, 3, 0, 2, 2, 40} }, tls13.ErrType},
		{"alert", func(s *tls13.Session) []byte { return s.Out.AppendAlert(nil, 42) }, tls.AlertError(42)},
		{"truncated", func(s *tls13.Session) []byte { b, _ := s.Out.Append(nil, make([]byte, 9)); return b[:9] }, io.ErrUnexpectedEOF},
		{"replayed", func(s *tls13.Session) []byte {
			b, _ := s.Out.Append(nil, []byte{0}) // the beginning of a frame
			return slices.Concat(b, b)
		}, tls13.ErrMAC},
		{"no close_notify", func(*tls13.Session) []byte { return nil }, io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			ca := tlstest.NewCA(t)
			a, b := newHost(t, secured(t, ca)), newHost(t, secured(t, ca))
			link(t, a, b, attrs(), attrs())
			other := b.qp
			otherA := a.qp
			link(t, a, b, attrs(), attrs())
			q := a.qp.(*qp)
			rec := c.rec(q.tls.Session)
			if c.name == "alert" && fips140.Enabled() {
				t.Skip("crypto/tls sends no such alert")
			}
			if len(rec) > 0 {
				if _, err := unix.Write(q.fd, rec); err != nil {
					t.Fatal(err)
				}
			}
			if c.want == io.ErrUnexpectedEOF {
				unix.Shutdown(q.fd, unix.SHUT_WR)
			}
			if e := b.event(); e.Type != verbs.CMDisconnected || !errors.Is(e.Err, c.want) || e.QP != b.qp {
				t.Fatalf("%v: %v, want %v", e.Type, e.Err, c.want)
			}
			a.qp, b.qp = otherA, other
			b.recv(verbs.RecvWR{SGL: b.sge(0, 8)})
			a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 8)})
			for _, wc := range b.take(1, a) {
				if wc.Status != verbs.WCSuccess {
					t.Errorf("the other queue pair: %v", wc.Status)
				}
			}
		})
	}
}

// TestSecureRefused: who has not the right certificate does not get in, and both
// ends know why.
func TestSecureRefused(t *testing.T) {
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	plain := Options{}
	withCert := func(c *tls.Config) Options {
		return Options{HandshakeRate: 1 << 20, TLS: func(netip.Addr) (*tls.Config, error) { return c, nil }}
	}
	ips := tlstest.IPs("127.0.0.1", "127.0.0.2")
	noCert := ca.Config(t, ips)
	noCert.Certificates = nil
	wrongCA := foreign.Config(t, ips)
	wrongCA.RootCAs = ca.Config(t, ips).RootCAs
	good := func() Options { return secured(t, ca) }
	old := func(c *tlstest.Cert) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	for _, c := range []struct {
		name         string
		dials, hears Options
		dialer, far  string // in what each end says
		counter      func(*Stats) uint64
	}{
		{"plain to TLS", plain, good(), "wants TLS", "begins without TLS", func(s *Stats) uint64 { return s.HandshakePlain }},
		{"TLS to plain", good(), Options{}, "has no TLS", "begins with TLS", func(s *Stats) uint64 { return s.HandshakePlain }},
		{"no certificate", withCert(noCert), good(), "certificate required", "didn't provide a certificate", failedTLS},
		{"another CA", withCert(wrongCA), good(), "unknown certificate authority", "unknown authority", failedTLS},
		{"their CA is another", good(), withCert(foreign.Config(t, ips)), "unknown authority", "does not accept", failedTLS},
		{"expired", secured(t, ca, old), good(), "expired", "expired", failedTLS},
		{"address of another host", withCert(ca.Config(t, tlstest.IPs("127.0.0.9"))), good(), "bad certificate", "not for its address", failedTLS},
		{"listener's address is another", good(), withCert(ca.Config(t, tlstest.IPs("127.0.0.9"))), "not for its address", "does not accept", failedTLS},
		{"another name", named(t, ca, "a", "b"), named(t, ca, "b", "c"), "bad certificate", "not for its address", failedTLS},
		{"a name and not the address", named(t, ca, "a", ""), good(), "bad certificate", "not for its address", failedTLS},
		{"the address and not the name", named(t, ca, "a", "b"), named(t, ca, "127.0.0.2", "a"), "not for its address", "does not accept", failedTLS},
		{"the listener's identity", identified(t, ca, "spiffe://test/one", "spiffe://test/x"), identified(t, ca, "spiffe://test/two", ""), "another identity", "does not accept", failedTLS},
		{"the dialer's identity", identified(t, ca, "spiffe://test/one", ""), identified(t, ca, "spiffe://test/two", "spiffe://test/x"), "bad certificate", "another identity", failedTLS},
		{"any identity, another CA", identified(t, ca, "spiffe://test/one", ""), identified(t, tlstest.NewCA(t), "spiffe://test/two", ""), "unknown authority", "does not accept", failedTLS},
		{"any identity, a dialer of another CA", identified(t, tlstest.NewCA(t), "spiffe://test/one", ""), identified(t, ca, "spiffe://test/two", ""), "unknown authority", "does not accept", failedTLS},
		{"not allowed", good(), forbids(good()), verbs.ErrForbidden.Error(), "not this host", failedAllow},
		{"not allowed, without TLS", plain, forbids(good()), verbs.ErrForbidden.Error(), "not this host", failedAllow},
		{"not allowed, and silent", good(), silentOf(forbids(good())), errNoWord.Error(), "not this host", failedAllow},
		{"server only", secured(t, ca, tlstest.ServerOnly), good(), "bad certificate", "incompatible key usage", failedTLS},
	} {
		t.Run(c.name, func(t *testing.T) {
			why := make(chan error, 1)
			c.hears.Refused = func(_, _ netip.Addr, err error) { why <- err }
			a, b := newHost(t, c.dials), newHost(t, c.hears)
			l, err := b.dev.Listen(netip.MustParseAddrPort("127.0.0.2:0"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a.qp = a.newQP(attrs())
			if err := a.dev.Connect(a.qp, verbs.ConnectParam{Local: netip.MustParseAddrPort("127.0.0.1:0"), Remote: l.Addr()}); err != nil {
				t.Fatal(err)
			}
			if e := a.event(b); e.Type != verbs.CMConnectError && e.Type != verbs.CMRejected ||
				(e.Type == verbs.CMRejected) != byPeer(e.Err) || !strings.Contains(e.Err.Error(), c.dialer) {
				t.Errorf("dialer: %v: %v", e.Type, e.Err)
			}
			select {
			case err := <-why:
				if !strings.Contains(err.Error(), c.far) {
					t.Errorf("listener: %v", err)
				}
			case <-time.After(failsafe):
				t.Fatal("the listener says nothing")
			}
			if s := b.dev.Stats(); c.counter(&s) != 1 {
				t.Errorf("counters %+v", s)
			}
		})
	}
}

// named is a host whose certificate is for own, an address or a name, and that
// wants far of its peer; "": its address.
func named(t testing.TB, ca *tlstest.CA, own, far string) Options {
	edit := tlstest.Name(own)
	if _, err := netip.ParseAddr(own); err == nil {
		edit = tlstest.IPs(own)
	}
	cfg := ca.Config(t, edit)
	cfg.ServerName = far
	return Options{HandshakeRate: 1 << 20, TLS: func(netip.Addr) (*tls.Config, error) { return cfg, nil }}
}

// TestSecureNames: certificates with names, where each end wants the other's; and
// one with a name beside one with its address.
func TestSecureNames(t *testing.T) {
	ca := tlstest.NewCA(t)
	for _, c := range []struct{ a, b Options }{
		{named(t, ca, "a.test", "b.test"), named(t, ca, "b.test", "a.test")},
		{named(t, ca, "127.0.0.1", "b.test"), named(t, ca, "b.test", "")},
		{named(t, ca, "a.test", ""), named(t, ca, "127.0.0.1", "a.test")},
	} {
		a, b := newHost(t, c.a), newHost(t, c.b)
		link(t, a, b, attrs(), attrs())
	}
}

func failedTLS(s *Stats) uint64 { return s.HandshakeTLS }

// TestSecureFlood: connections that say nothing or nonsense, or say it slowly,
// are bounded and hurt no queue pair.
func TestSecureFlood(t *testing.T) {
	ca := tlstest.NewCA(t)
	opt := secured(t, ca)
	opt.MaxHandshakes, opt.HandshakeTimeout = 4, 300*time.Millisecond
	a, b := newHost(t, secured(t, ca)), newHost(t, opt)
	link(t, a, b, attrs(), attrs())
	l, err := b.dev.Listen(netip.MustParseAddrPort("127.0.0.2:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hello := []byte{22, 3, 1, 2, 0}
	for i, say := range [][]byte{nil, hello, append(hello[:5:5], make([]byte, 512)...), []byte("GET / HTTP/1.0\r\n\r\n"), {22, 3, 1, 0x40, 0}} {
		for range 8 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(i, err)
			}
			defer c.Close()
			c.Write(say)
		}
	}
	run(t, "the end of the flood", func() bool {
		s := b.dev.Stats()
		return s.HandshakeTimeout+s.HandshakeGarbage+s.HandshakeRefused+s.HandshakeTLS == 40
	}, a, b)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 8)})
	a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 8)})
	b.take(1, a)
}

// TestSecureRate: over the rate nothing is spent on a source.
func TestSecureRate(t *testing.T) {
	ca := tlstest.NewCA(t)
	opt := secured(t, ca)
	opt.HandshakeRate = 40 // and as many at once, in all
	b := newHost(t, opt)
	l, err := b.dev.Listen(netip.MustParseAddrPort("127.0.0.2:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 * atOnce {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "refusals", b, func() bool { return b.dev.Stats().HandshakeLimited > 0 })
}

// TestSecureAllocs: records cost no allocation.
func TestSecureAllocs(t *testing.T) {
	if raceEnabled || fips140.Enabled() {
		t.Skip("the race detector allocates, and so does crypto/tls")
	}
	a, b := securePair(t, attrs(), nil)
	wr := []verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: a.sge(0, 40000)}}
	rw := []verbs.RecvWR{{SGL: b.sge(0, 40000)}}
	var wc [4]verbs.WC
	got := testing.AllocsPerRun(100, func() {
		b.qp.PostRecv(rw)
		a.qp.PostSend(wr)
		for done := 0; done < 2; {
			a.dev.Progress()
			b.dev.Progress()
			done += a.cq.Poll(wc[:]) + b.cq.Poll(wc[:])
		}
	})
	if got > 0 {
		t.Errorf("%v allocations for a message", got)
	}
}
