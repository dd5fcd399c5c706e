package soft

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// forbids is o of a host that allows no peer.
func forbids(o Options) Options {
	o.TLS = func(netip.Addr) (*tls.Config, error) { return nil, errors.New("not this host") }
	return o
}

// silentOf is o of a host that does not say why it turns others away.
func silentOf(o Options) Options {
	o.Silent = func() bool { return true }
	return o
}

// busyOf is o of a host that takes one TLS handshake a second.
func busyOf(o Options) Options {
	o.HandshakeRate = 1
	return o
}

// TestDenials: a source that is turned away again and again is neither answered nor reported each time.
func TestDenials(t *testing.T) {
	const dials = 200
	for name, c := range map[string]struct {
		opt    Options
		counts func(*Stats) uint64
	}{
		"not allowed": {forbids(Options{HandshakeRate: 40}), failedAllow}, // one a second for a source, four at once
		"too many":    {busyOf(secured(t, tlstest.NewCA(t))), func(s *Stats) uint64 { return s.HandshakeLimited }},
	} {
		told := make(chan error, dials)
		c.opt.Refused = func(_, _ netip.Addr, err error) { told <- err }
		b := newHost(t, c.opt)
		l := listen(t, b)
		for range dials {
			dialRaw(t, l.Addr())
		}
		eventually(t, "refusals", b, func() bool { s := b.dev.Stats(); return c.counts(&s) >= dials*3/4 })
		if n := len(told); n == 0 || n > dials/2 {
			t.Errorf("%s: %d of %d refusals are reported", name, n, dials)
		}
	}
}

// TestBusy: a host that takes no more TLS handshakes says so, and not that it does not allow the dialer.
func TestBusy(t *testing.T) {
	ca := tlstest.NewCA(t)
	for name, opt := range map[string]Options{"TLS": secured(t, ca), "plain": {}} {
		busy := busyOf(secured(t, ca))
		said := make(chan error, 1000)
		busy.Refused = func(_, _ netip.Addr, err error) { said <- err }
		a, b := newHost(t, opt), newHost(t, busy)
		l := listen(t, b)
		var e verbs.CMEvent
		for range 100 {
			dialRaw(t, l.Addr()) // takes the handshake that a second gives
			a.ev, b.ev = nil, nil
			if err := a.dev.Connect(a.newQP(attrs()), verbs.ConnectParam{Remote: l.Addr()}); err != nil {
				t.Fatal(err)
			}
			run(t, "an answer", func() bool { return len(a.ev)+len(b.ev) > 0 }, a, b)
			if len(a.ev) > 0 && !errors.Is(a.ev[0].Err, errNeedsTLS) {
				e = a.ev[0]
				break
			}
		}
		if e.Type != verbs.CMRejected || !errors.Is(e.Err, verbs.ErrBusy) || errors.Is(e.Err, verbs.ErrForbidden) {
			t.Errorf("%s: %v: %v", name, e.Type, e.Err)
		}
		if s := b.dev.Stats(); s.HandshakeLimited == 0 || s.HandshakeRefused != 0 || <-said != errTooMany {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestStranger: an answer of something else than rdsd is quoted, whatever this host begins with.
func TestStranger(t *testing.T) {
	ca := tlstest.NewCA(t)
	for _, opt := range []Options{{}, secured(t, ca)} {
		for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0"} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					c.Read(make([]byte, 1))
					c.Write([]byte(answer))
					c.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, c)
					c.Close()
				}
			}()
			h := newHost(t, opt)
			h.qp = h.newQP(attrs())
			if err := h.dev.Connect(h.qp, verbs.ConnectParam{Remote: addrOf(l.Addr())}); err != nil {
				t.Fatal(err)
			}
			if e := h.event(); e.Type != verbs.CMConnectError || !errors.Is(e.Err, unix.ECONNREFUSED) ||
				!strings.Contains(e.Err.Error(), "is no rdsd: it answers \""+answer[:5]) {
				t.Errorf("%v: %v", e.Type, e.Err)
			}
		}
	}
}

func failedAllow(s *Stats) uint64 { return s.HandshakeRefused }

// TestPartShares: hosts that are turned away and do not leave take no other host's last word.
func TestPartShares(t *testing.T) {
	h := newHost(t, Options{LingerTimeout: time.Minute})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	part := func(from string) (word string) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		h.dev.ctl.part(in, []byte("no"))
		in.Close()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		for range maxLinger / 2 {
			part(from)
		}
	}
	if got := part("127.0.0.5"); got != "no" {
		t.Errorf("another host is told %q", got)
	}
	h.dev.Close()
	if n := h.dev.ctl.parting.free; n != maxLinger/2 {
		t.Errorf("%d of %d places are free at the end", n, maxLinger/2)
	}
}
