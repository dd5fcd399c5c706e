package soft

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

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

// TestDenials: a source that is turned away again and again is neither answered nor reported each time.
func TestDenials(t *testing.T) {
	opt := forbids(Options{HandshakeRate: 40}) // one a second for a source, four at once
	told := make(chan error, 100)
	opt.Refused = func(_, _ netip.Addr, err error) { told <- err }
	b := newHost(t, opt)
	l := listen(t, b)
	const dials = 50
	for range dials {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "refusals", b, func() bool { return b.dev.Stats().HandshakeRefused == dials })
	if n := len(told); n == 0 || n > dials/2 {
		t.Errorf("%d of %d refusals are reported", n, dials)
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
