package soft

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// byteStream is a connection in set-up: plain, or secured by the TLS handshake.
type byteStream struct {
	net.Conn
	tls *secure
	buf []byte // opened and not read
}

func (s *byteStream) Read(b []byte) (int, error) {
	if s.tls == nil {
		return s.Conn.Read(b)
	}
	for len(s.buf) == 0 {
		rec := make([]byte, tls13.HeaderLen, tls13.MaxRecord)
		if _, err := io.ReadFull(s.Conn, rec); err != nil {
			return 0, err
		}
		n, err := tls13.RecordLen(rec)
		if err != nil {
			return 0, err
		}
		rec = rec[:n]
		if _, err := io.ReadFull(s.Conn, rec[tls13.HeaderLen:]); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if err != nil {
			return 0, err
		}
		buf := make([]byte, n)
		if n, err = s.tls.In.Open(buf, rec); err == tls13.ErrClosed {
			return 0, io.EOF
		} else if err != nil {
			return 0, err
		}
		s.buf = buf[:n]
	}
	n := copy(b, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

func (s *byteStream) Write(b []byte) (int, error) {
	if s.tls == nil {
		return s.Conn.Write(b)
	}
	c, err := s.tls.Out.Append(nil, b)
	if err != nil {
		return 0, err
	}
	if _, err := s.Conn.Write(c); err != nil {
		return 0, err
	}
	return len(b), nil
}

// secure runs the handshake of TLS on s. Both ends have to show a certificate for
// the address that they have on this connection, or for what cfg has for the peer. cfg
// is not changed.
func (c *control) secure(s *byteStream, cfg *tls.Config, client bool) error {
	cfg = cfg.Clone()
	also := cfg.VerifyConnection
	if cfg.InsecureSkipVerify && also == nil {
		return errNoIdentity
	}
	peer := cfg.ServerName
	if peer == "" {
		peer = addrOf(s.RemoteAddr()).Addr().String()
	}
	switch {
	case client && cfg.InsecureSkipVerify:
		// crypto/tls checks nothing then: the chain is checked here, what the certificate
		// is for by VerifyConnection.
		cfg.VerifyConnection = func(st tls.ConnectionState) error {
			if err := verifyChain(&st, cfg.RootCAs); err != nil {
				return err
			}
			return also(st)
		}
	case client:
		cfg.ServerName = peer // checked by crypto/tls; an address against IP SANs
	default:
		cfg.ClientAuth = tls.RequireAndVerifyClientCert // checks the chain
		cfg.VerifyConnection = func(st tls.ConnectionState) error {
			if !cfg.InsecureSkipVerify {
				if err := st.PeerCertificates[0].VerifyHostname(peer); err != nil {
					return err
				}
			}
			if also != nil {
				return also(st)
			}
			return nil
		}
	}
	ses, err := tls13.Handshake(s.Conn, cfg, client)
	if err != nil {
		return err
	}
	atomic.AddUint64(&c.stats.HandshakeSecured, 1)
	s.tls = &secure{Session: ses}
	return nil
}

// errNoIdentity is the error of a configuration that would take any certificate.
var errNoIdentity = errors.New("TLS: InsecureSkipVerify without VerifyConnection")

// verifyChain checks that the server's certificate leads to roots.
func verifyChain(st *tls.ConnectionState, roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range st.PeerCertificates[1:] {
		between.AddCert(c)
	}
	chains, err := st.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: st.PeerCertificates, Err: err}
	}
	st.VerifiedChains = chains
	return nil
}

// tlsFor returns how a connection with peer is secured; nil: it is plain.
func (c *control) tlsFor(peer netip.Addr) (*tls.Config, error) {
	if c.opt.TLS == nil {
		return nil, nil
	}
	return c.opt.TLS(peer)
}

// needsTLS is the private data of the plain MPA reply to an initiator that does
// not begin with TLS where it should.
const needsTLS = "TLS\n"

var (
	errTLSHere  = errors.New("the peer begins with TLS, which is off here for its address (tls.mode, tls.cert)")
	errNoTLS    = errors.New("the peer has no TLS for our address (its tls.mode, tls.cert)")
	errNeedsTLS = fmt.Errorf("the peer wants TLS, which is off here for its address (tls.mode, tls.cert): %w", unix.ECONNREFUSED)
	errPlain    = errors.New("the peer begins without TLS (its tls.mode, tls.cert)")
	errTooMany  = errors.New("no more TLS handshakes now: too many want one")
)

// refuse counts an incoming connection that is turned away.
func (c *control) refuse(n *uint64, local, remote netip.Addr, why error) {
	atomic.AddUint64(n, 1)
	if c.opt.Refused != nil {
		c.opt.Refused(local, remote, why)
	}
}

// deny turns an incoming connection away before anything of it was read: its host is not allowed, or why is errTooMany.
// heard is false if the host was turned away too often lately: then nobody is notified.
func (c *control) deny(conn net.Conn, heard bool, why error) {
	defer conn.Close()
	n, alert := &c.stats.HandshakeRefused, uint8(tls13.AlertAccessDenied)
	if why == errTooMany {
		n, alert = &c.stats.HandshakeLimited, tls13.AlertUserCanceled
	}
	if !heard {
		atomic.AddUint64(n, 1)
		return
	}
	c.refuse(n, addrOf(conn.LocalAddr()).Addr(), addrOf(conn.RemoteAddr()).Addr(), why)
	if why == errTooMany || c.opt.Silent == nil || !c.opt.Silent() {
		c.part(conn, tls13.PlainAlert(alert))
	}
}

// insecure ends an incoming connection whose handshake failed.
func (c *control) insecure(tcp net.Conn, err error) {
	local, remote := addrOf(tcp.LocalAddr()).Addr(), addrOf(tcp.RemoteAddr()).Addr()
	var plain *tls13.ErrPlain
	switch {
	case err == io.EOF: // gone without a word
	case errors.Is(err, os.ErrDeadlineExceeded):
		atomic.AddUint64(&c.stats.HandshakeTimeout, 1)
	case errors.As(err, &plain) && string(plain.First[:3]) == "MPA":
		c.refuse(&c.stats.HandshakePlain, local, remote, errPlain)
		c.answerPlain(tcp, []byte(needsTLS))
	case errors.As(err, &plain):
		c.refuse(&c.stats.HandshakeGarbage, local, remote, err)
	default:
		c.refuse(&c.stats.HandshakeTLS, local, remote, tlsFailure(err))
		c.part(tcp, nil)
	}
}

// answerPlain rejects the peer in plain MPA, so that the peer can see why.
func (c *control) answerPlain(tcp net.Conn, private []byte) {
	m := iwarp.MPA{Reply: true, Reject: true, Rev: 1, Private: private}
	c.part(tcp, m.Append(nil))
}

// part closes tcp behind last, in a way that lets the peer read it, unless too many
// connections, or too many of its source, are being closed that way.
func (c *control) part(tcp net.Conn, last []byte) {
	src := addrOf(tcp.RemoteAddr()).Addr()
	if !c.parting.take(src) {
		return
	}
	done := func() { c.parting.give(src) }
	fd, err := c.detach(tcp)
	if err != nil {
		done()
		return
	}
	c.lingerFor(fd, last, false, done)
}

// tlsFailure returns err of a failed handshake, with what to do about it.
func tlsFailure(err error) error {
	var plain *tls13.ErrPlain
	var host x509.HostnameError
	alert, alerted := tls13.AlertOf(err)
	switch {
	case errors.As(err, &plain) && string(plain.First[:3]) == "MPA":
		return errNoTLS
	case errors.As(err, &plain):
		return &strangerError{plain.First[:]}
	case alerted:
		return alertError(alert)
	case err == io.EOF || errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("TLS: %w: %w", errNoWord, err)
	case errors.As(err, &host):
		return fmt.Errorf("TLS: the peer's certificate is not for its address (IP SAN, or its name of tls.names): %w", err)
	}
	return fmt.Errorf("TLS: %w", err)
}
