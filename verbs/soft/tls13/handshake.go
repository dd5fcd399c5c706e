package tls13

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// Session is a connection after its handshake.
type Session struct {
	In    Opener
	Out   Sealer
	State tls.ConnectionState
}

// Halves reports whether In and Out may be used at the same time: not if crypto/tls carries the records.
func (s *Session) Halves() bool { return s.Out.by == nil }

// NewSession makes one end of a connection from its traffic secrets.
func NewSession(suiteID uint16, client bool, clientSecret, serverSecret []byte) (*Session, error) {
	su, err := suiteOf(suiteID)
	if err != nil {
		return nil, err
	}
	mine, theirs := serverSecret, clientSecret
	if client {
		mine, theirs = theirs, mine
	}
	s := &Session{State: tls.ConnectionState{CipherSuite: suiteID}}
	s.In.out = &s.Out
	return s, errors.Join(s.Out.init(su, mine), s.In.init(su, theirs))
}

// Suite returns the name of the cipher suite.
func (s *Session) Suite() string { return tls.CipherSuiteName(s.State.CipherSuite) }

// What a peer may send before it is authenticated, bytes.
const (
	maxFirst     = 8 << 10 // in its first record
	maxHandshake = 96 << 10
)

// ErrPlain says that the peer has not begun a TLS handshake. First is what the peer
// sent instead.
type ErrPlain struct{ First [HeaderLen]byte }

func (e *ErrPlain) Error() string {
	return fmt.Sprintf("the peer does not speak TLS (it sent %q)", e.First[:])
}

// Handshake runs the handshake on c, which may have deadlines, as the client or the
// server. It speaks TLS 1.3 without tickets, whatever cfg says. It reads exactly the
// records of the handshake: what follows them is still in c. Errors: *ErrPlain,
// those of crypto/tls and of c.
func Handshake(c net.Conn, cfg *tls.Config, client bool) (*Session, error) {
	return handshake(c, cfg, client, approved)
}

// handshake is Handshake. With carry crypto/tls carries the records.
func handshake(c net.Conn, cfg *tls.Config, client, carry bool) (*Session, error) {
	cfg = cfg.Clone()
	cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	cfg.SessionTicketsDisabled, cfg.ClientSessionCache = true, nil
	cfg.GetConfigForClient = nil
	cfg.DynamicRecordSizingDisabled = true
	var log bytes.Buffer
	also := cfg.KeyLogWriter
	if !carry || also != nil {
		cfg.KeyLogWriter = &log
	}
	by := &carried{recordConn: recordConn{Conn: c}}
	if client {
		by.tc = tls.Client(by, cfg)
	} else {
		by.first = maxFirst
		by.tc = tls.Server(by, cfg)
	}
	err := by.tc.Handshake()
	if also != nil {
		_, _ = also.Write(log.Bytes())
	}
	if err != nil {
		return nil, err
	}
	if carry {
		by.up, by.Conn = true, nil
		return &Session{In: Opener{by: by}, Out: Sealer{by: by}, State: by.tc.ConnectionState()}, nil
	}
	return sessionOf(by.tc.ConnectionState(), log.String(), client)
}

// sessionOf makes a session of a handshake by its key log.
func sessionOf(st tls.ConnectionState, log string, client bool) (*Session, error) {
	cs, err := secret(log, "CLIENT_TRAFFIC_SECRET_0")
	if err != nil {
		return nil, err
	}
	ss, err := secret(log, "SERVER_TRAFFIC_SECRET_0")
	if err != nil {
		return nil, err
	}
	s, err := NewSession(st.CipherSuite, client, cs, ss)
	if err != nil {
		return nil, err
	}
	s.State = st
	return s, nil
}

// secret finds a secret in a key log.
func secret(log, label string) ([]byte, error) {
	for line := range strings.Lines(log) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == label {
			return hex.DecodeString(f[2])
		}
	}
	return nil, fmt.Errorf("TLS: the handshake gave no %s", label)
}

// recordConn gives its reader no more than the record at hand.
type recordConn struct {
	net.Conn
	hdr   [HeaderLen]byte
	given int // of hdr
	left  int // of the record's body
	total int
	first int // bound of the first record, 0: the common one
}

func (r *recordConn) Read(b []byte) (int, error) {
	if r.left == 0 && (r.total == 0 || r.given == HeaderLen) {
		if err := r.header(); err != nil {
			return 0, err
		}
	}
	if r.given < HeaderLen {
		n := copy(b, r.hdr[r.given:])
		r.given += n
		return n, nil
	}
	n, err := r.Conn.Read(b[:min(len(b), r.left)])
	r.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// header reads the next record's.
func (r *recordConn) header() error {
	if _, err := io.ReadFull(r.Conn, r.hdr[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(r.hdr[3:]))
	most := MaxRecord - HeaderLen
	if r.total == 0 {
		if t := r.hdr[0]; t != typeHandshake && t != typeAlert || r.hdr[1] != 3 {
			return &ErrPlain{r.hdr}
		}
		if r.first > 0 {
			most = r.first
		}
	}
	if n > most {
		return fmt.Errorf("TLS: %w: %d bytes", ErrOverflow, n)
	}
	r.given, r.left = 0, n
	if r.total += HeaderLen + n; r.total > maxHandshake {
		return fmt.Errorf("TLS: a handshake of more than %d bytes", maxHandshake)
	}
	return nil
}
