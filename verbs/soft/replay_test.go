package soft

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// relay leads connections to a listener, what is sent to it byte by byte, and
// keeps that.
type relay struct {
	l    net.Listener
	mu   sync.Mutex
	sent []byte // guarded by mu
}

func newRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{l: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				c.Close()
				continue
			}
			go func() { io.Copy(c, far); c.Close() }()
			go r.drip(far, c)
		}
	}()
	return r
}

func (r *relay) drip(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		r.sent = append(r.sent, b[:n]...)
		r.mu.Unlock()
		for i := range n {
			if _, err := to.Write(b[i : i+1]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) addr() netip.AddrPort { return netip.MustParseAddrPort(r.l.Addr().String()) }

// TestSecureReplay: a stream in pieces of one byte is the same stream, and the
// same stream a second time is none.
func TestSecureReplay(t *testing.T) {
	ca := tlstest.NewCA(t)
	a, b := newHost(t, secured(t, ca)), newHost(t, secured(t, ca))
	var r *relay
	l := linkVia(t, a, b, attrs(), attrs(), func(at netip.AddrPort) netip.AddrPort {
		r = newRelay(t, at)
		return r.addr()
	})
	defer l.Close()
	fill(a.mem, 1)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 20000)}, verbs.RecvWR{SGL: b.sge(0, 20000)})
	a.send(verbs.SendWR{Op: verbs.OpSend, SGL: a.sge(0, 20000)})
	if wc := b.take(1, a); wc[0].Status != verbs.WCSuccess || !slices.Equal(a.mem[:20000], b.mem[:20000]) {
		t.Fatalf("%+v", wc)
	}

	r.mu.Lock()
	all := slices.Clone(r.sent)
	r.mu.Unlock()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(all); err != nil {
		t.Fatal(err)
	}
	run(t, "a refusal", func() bool { s := b.dev.Stats(); return failedTLS(&s) == 1 }, a, b)
	if len(b.ev) > 0 || len(b.wc) > 0 {
		t.Errorf("the replay is heard: %+v, %+v", b.ev, b.wc)
	}
}
