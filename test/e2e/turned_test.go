package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// withCertificate gives the host a certificate of ca for its addresses. It takes those of trusted.
func withCertificate(t *testing.T, ca, trusted *tlstest.CA) option {
	return func(h *host) {
		dir, authority := t.TempDir(), t.TempDir()
		ca.Write(t, dir, tlstest.IPs(h.own().String(), h.absent().String()))
		trusted.Write(t, authority)
		h.args = append(h.args, "-tls-mode", "on", "-tls-cert", dir+"/cert.pem", "-tls-key", dir+"/key.pem", "-tls-ca", authority+"/ca.pem")
		h.expected = append(h.expected, "certificate", "tls.ca")
	}
}

// absent is an address for benchmarks (RFC 2544), which no host has. Each host has its own, also beside
// those of tests that run at the same time: the middle of a host's address is its test's.
func (h *host) absent() netip.Addr {
	b := h.own().As4()
	return netip.AddrFrom4([4]byte{198, 18 + b[1]&1, b[2], b[3]})
}

// own is the host's first address, which it gets here if it has none yet.
func (h *host) own() netip.Addr {
	if len(h.addrs) == 0 {
		h.addrs = append(h.addrs, newAddress(h.t))
	}
	return h.addr()
}

// forbidding has the host allow an address that no host of the test has. Loopback is allowed by itself where all addresses are of it.
func forbidding(h *host) {
	a := h.absent()
	h.addrs = append(h.addrs, a)
	h.args = append(h.args, "-peers-allow", "127.255.255.254", "-tls-mode", "off", "-tls-warn", "off")
	h.expected = append(h.expected, a.String())
}

// TestJudgedTurnedAway has a host turn another one away. Both say why: the judgement, ping, peers, the send that fails and
// the events of the one that turns away.
func TestJudgedTurnedAway(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ca := tlstest.NewCA(t)
		silent := withArgs("-peers-explain", "off")
		for name, tc := range map[string]struct {
			here, there []option
			why, whyNot string // here, there
			errno       syscall.Errno
		}{
			"forbidden":                {nil, []option{forbidding}, "its peers.allow does not name this host", "not in peers.allow", syscall.EPERM},
			"forbidden, TLS":           {[]option{withCertificate(t, ca, ca)}, []option{forbidding, withCertificate(t, ca, ca)}, "its peers.allow does not name this host", "not in peers.allow", syscall.EPERM},
			"forbidden, TLS there":     {nil, []option{forbidding, withCertificate(t, ca, ca)}, "its peers.allow does not name this host", "not in peers.allow", syscall.EPERM},
			"forbidden, silent":        {nil, []option{forbidding, silent}, "it does not say why", "not in peers.allow", syscall.EPERM},
			"forbidden, silent by TLS": {[]option{withCertificate(t, ca, ca)}, []option{forbidding, silent, withCertificate(t, ca, ca)}, "without a word", "not in peers.allow", syscall.EHOSTUNREACH},
			"certificate":              {[]option{withCertificate(t, tlstest.NewCA(t), ca)}, []option{withCertificate(t, ca, ca)}, "does not accept this host's certificate", "unknown authority", syscall.EPERM},
			"TLS here":                 {[]option{withCertificate(t, ca, ca)}, nil, "the peer has no TLS for our address", "begins with TLS", syscall.EHOSTUNREACH},
		} {
			t.Run(name, func(t *testing.T) {
				here, there := newHost(t, tc.here...), newHost(t, tc.there...)
				turnedAway(t, here, there.addr(), tc.why, tc.errno)
				there.turned(here.addr(), tc.whyNot)
				contains(t, "rdsctl events", there.rdsctl("events"), "warn", tc.whyNot)
			})
		}
	})
}

// turned waits for the finding that the host has turned another one away. There may be findings about its addresses as well.
func (h *host) turned(other netip.Addr, why string) {
	h.t.Helper()
	eventually(h.t, "a finding", func() error {
		v := h.judge()
		for _, f := range v.found {
			if f.Check == ctl.FindRefused && f.Level == ctl.LevelWarn && f.About == other.String() && strings.Contains(f.Error, why) {
				return nil
			}
		}
		return errors.New(v.text)
	})
}

// turnedAway checks what a host says of a peer that does not take it.
func turnedAway(t *testing.T, here *host, there netip.Addr, why string, errno syscall.Errno) {
	t.Helper()
	s := here.bind(here.open(), 0)
	to := addrPortOf(there, 4000)
	if _, err := s.SendTo([]byte("x"), to); err != nil {
		t.Fatal(err)
	}
	here.judged(state{ctl.FindPeer, ctl.LevelError, "messages wait for " + there.String(), why})
	contains(t, "rdsctl peers", here.rdsctl("peers"), why)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.Wait(ctx, rds.WaitSet{Notice: true}); err != nil {
		t.Fatal(err)
	}
	var n [1]rds.Notice
	if s.Notices(n[:]) != 1 || n[0].Kind != rds.Unreachable || !errors.Is(n[0].Reason, errno) {
		t.Errorf("notice %+v (%v), want %v", n[0], n[0].Reason, errno)
	}
	p := startProcess(t, nil, program("rdsctl"), "ping", there.String(), "-c", "1", "-socket", here.sock)
	if code := p.wait(); code == 0 || !strings.Contains(p.stdout()+p.Stderr.Tail(), why) {
		t.Errorf("rdsctl ping: status %d: %s%s", code, p.stdout(), p.Stderr.Tail())
	}
	s.Close()
	here.judged(state{ctl.FindPeer, ctl.LevelWarn, there.String() + " was wanted and could not be reached", why})
}

// TestJudgedStrangers has something else at the place of a peer: a daemon of another version, one of before versions were named in
// rejections, and a server of another protocol.
func TestJudgedStrangers(t *testing.T) {
	isolated(t, func(t *testing.T) {
		reject := func(private []byte) []byte {
			m := iwarp.MPA{Reply: true, Reject: true, Rev: 2, Enhanced: true, Private: private}
			return m.Append(nil)
		}
		ca := tlstest.NewCA(t)
		for name, tc := range map[string]struct {
			answer []byte
			here   []option
			why    string
			errno  syscall.Errno
		}{
			"version":           {reject((&wire.Reject{Code: wire.RejectIncompat, Ext: 9}).Append(nil)), nil, "extension version 9, this one 2", syscall.EPERM},
			"version 1":         {reject([]byte{1, 0, 0, 0}), nil, "extension version 1 or is a Linux kernel, this rdsd speaks version 2", syscall.EPERM},
			"web server":        {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), nil, `is no rdsd: it answers "HTTP/1.1`, syscall.ECONNREFUSED},
			"web server by TLS": {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), []option{withCertificate(t, ca, ca)}, `is no rdsd: it answers "HTTP/`, syscall.ECONNREFUSED},
		} {
			t.Run(name, func(t *testing.T) {
				there := newAddress(t)
				answering(t, there, tc.answer)
				turnedAway(t, newHost(t, tc.here...), there, tc.why, tc.errno)
			})
		}
		t.Run("caller of another version", func(t *testing.T) {
			h := newHost(t)
			from := newAddress(t)
			c := h.dialTCP(from)
			if _, err := c.Write(h.mpa(from)); err != nil { // extension version 1
				t.Fatal(err)
			}
			head := make([]byte, iwarp.MPAHeaderLen)
			if _, err := io.ReadFull(c, head); err != nil {
				t.Fatal(err)
			}
			h.judged(state{ctl.FindRefused, ctl.LevelWarn, from.String() + " was turned away", "extension version 1, this one 2"})
		})
	})
}

// answering listens at rdsd's port of an address. It gives each connection that says something the same answer.
func answering(t *testing.T, addr netip.Addr, answer []byte) {
	t.Helper()
	l, err := net.Listen("tcp", addrPortOf(addr, rdsPort).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				_, _ = c.Write(answer)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
}
