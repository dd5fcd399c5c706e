package soft

import (
	"net"
	"net/netip"
	"testing"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestSecureSums: under TLS no end asks for checksums, whatever the other end does without TLS. A peer of
// an earlier release that asks for them gets them, and both ends know it.
func TestSecureSums(t *testing.T) {
	at := attrs()
	at.CRC = verbs.CRCOn
	a, b := securePair(t, at, nil)
	for _, h := range []*host{a, b} {
		if h.qp.(*qp).Checksums() {
			t.Error("checksums under TLS")
		}
	}
	for _, asks := range []bool{false, true} {
		active, passive := earlierDials(t, at, asks), earlierAnswers(t, at, asks)
		for _, h := range []*host{active, passive} {
			if got := h.qp.(*qp).Checksums(); got != asks {
				t.Errorf("checksums %v with a peer that asks for them: %v", got, asks)
			}
		}
	}
	a, b = newHost(t, Options{}), newHost(t, Options{})
	off := at
	off.CRC = verbs.CRCOff
	link(t, a, b, at, off)
	if !a.qp.(*qp).Checksums() || !b.qp.(*qp).Checksums() {
		t.Error("no checksums without TLS, where one end asks for them")
	}
	a.qp.ToError()
	if a.qp.(*qp).Checksums() {
		t.Error("checksums of no connection")
	}
}

// earlierDials is a host that a peer of an earlier release has connected. asks says whether the peer
// asks for checksums.
func earlierDials(t *testing.T, at verbs.QPInitAttr, asks bool) *host {
	t.Helper()
	ca := tlstest.NewCA(t)
	h := newHost(t, secured(t, ca))
	tcp := dialRaw(t, listen(t, h).Addr())
	s := shake(t, ca, tcp, true)
	s.Write((&iwarp.MPA{Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRWrite: true, CRC: asks}).Append(nil))
	h.qp = h.newQP(at)
	if err := h.dev.Accept(h.event().Req, h.qp, nil); err != nil {
		t.Fatal(err)
	}
	if m := mpaOf(t, h, s, true); m.CRC != asks {
		t.Errorf("the reply has CRC %v", m.CRC)
	}
	return h
}

// earlierAnswers is a host that has connected to a peer of an earlier release.
func earlierAnswers(t *testing.T, at verbs.QPInitAttr, asks bool) *host {
	t.Helper()
	ca := tlstest.NewCA(t)
	h := newHost(t, secured(t, ca))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h.qp = h.newQP(at)
	if err := h.dev.Connect(h.qp, verbs.ConnectParam{Remote: l.Addr().(*net.TCPAddr).AddrPort()}); err != nil {
		t.Fatal(err)
	}
	tcp, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	s := shake(t, ca, tcp, false)
	if m := mpaOf(t, h, s, false); m.CRC {
		t.Error("the request asks for checksums")
	}
	s.Write((&iwarp.MPA{Reply: true, Rev: 2, Enhanced: true, IRD: 1, ORD: 1, P2P: true, RTRWrite: true, CRC: asks}).Append(nil))
	if e := h.event(); e.Type != verbs.CMEstablished {
		t.Fatalf("%+v", e)
	}
	return h
}

// shake runs the peer's handshake on tcp.
func shake(t *testing.T, ca *tlstest.CA, tcp net.Conn, client bool) *byteStream {
	t.Helper()
	cfg, _ := secured(t, ca).TLS(netip.Addr{})
	cfg.ServerName = "127.0.0.1"
	ses, err := tls13.Handshake(tcp, cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	return &byteStream{Conn: tcp, tls: &secure{Session: ses}}
}

// mpaOf reads h's MPA frame.
func mpaOf(t *testing.T, h *host, s *byteStream, reply bool) iwarp.MPA {
	t.Helper()
	m, err := h.dev.ctl.readMPA(s, reply)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
