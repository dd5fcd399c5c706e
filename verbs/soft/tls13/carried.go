package tls13

import (
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// approved reports whether only crypto/tls may make records. In Go's FIPS 140-3 mode the
// AES-GCM of TLS 1.3 is approved inside crypto/tls, whose nonces cannot repeat. That of
// crypto/cipher takes any nonce. It is not approved, and refused with GODEBUG=fips140=only.
var approved = fips140.Enabled()

// maxAnswers is how many KeyUpdates of a peer may wait for their answers.
const maxAnswers = 16

// carried makes and opens records by crypto/tls. It is the connection that crypto/tls has:
// the socket during the handshake, memory afterwards. No method blocks then.
type carried struct {
	recordConn
	tc *tls.Conn
	up bool // the handshake is done

	in  []byte // of the record that is being opened, what crypto/tls has not taken
	to  []byte // where the record that is being sealed goes; nil: to out
	n   int    // its length
	out []byte // what crypto/tls says by itself: answers to KeyUpdates, then at most one alert
}

// taken is the error of a connection that has no more for crypto/tls now. crypto/tls goes
// on after an error that is temporary.
type taken struct{}

func (taken) Error() string   { return "TLS: the record is taken" }
func (taken) Timeout() bool   { return true }
func (taken) Temporary() bool { return true }

// Read implements net.Conn for crypto/tls.
func (c *carried) Read(b []byte) (int, error) {
	if !c.up {
		return c.recordConn.Read(b)
	}
	if len(c.in) == 0 {
		return 0, taken{}
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

// Write implements net.Conn for crypto/tls.
func (c *carried) Write(b []byte) (int, error) {
	switch {
	case !c.up:
		return c.Conn.Write(b)
	case c.to == nil:
		c.out = append(c.out, b...)
	case c.n > 0 || len(b) > len(c.to):
		return 0, io.ErrShortWrite // more than one record of at most MaxPlain
	default:
		c.n = copy(c.to, b)
	}
	return len(b), nil
}

// SetWriteDeadline implements net.Conn for crypto/tls, which bounds its close_notify.
func (c *carried) SetWriteDeadline(time.Time) error { return nil }

// open is Opener.Open.
func (c *carried) open(dst, rec []byte) (int, error) {
	c.in = rec
	n, err := c.tc.Read(dst)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		return 0, ErrClosed
	case err != error(taken{}):
		return 0, c.failure(err)
	case len(c.out) > maxAnswers*UpdateLen:
		return 0, broken(AlertUnexpectedMessage, "%w", ErrUpdates)
	}
	return 0, nil
}

// failure is an error of crypto/tls as one of this package. crypto/tls has made the alert.
func (c *carried) failure(err error) *Error {
	if code, ok := AlertOf(err); ok {
		return alertError(uint8(code))
	}
	switch code, _ := alertIn(err, "local error"); code {
	case AlertBadRecordMAC:
		return broken(AlertBadRecordMAC, "%w", ErrMAC)
	case AlertRecordOverflow:
		return broken(AlertRecordOverflow, "%w", ErrOverflow)
	}
	return broken(AlertUnexpectedMessage, "%w: %w", ErrType, err)
}

// seal is Sealer.Seal.
func (c *carried) seal(b, p []byte) (int, error) {
	c.to, c.n = b, 0
	_, err := c.tc.Write(p)
	c.to = nil
	return c.n, err
}

// answers appends the answers to KeyUpdates.
func (c *carried) answers(b []byte) []byte {
	b, c.out = append(b, c.out...), nil
	return b
}

// alert is Sealer.AppendAlert. crypto/tls has no call for an alert other than close_notify. So
// an error that it has not found itself has none, and the peer sees a stream that is cut off.
func (c *carried) alert(b []byte, code uint8) []byte {
	if code == AlertCloseNotify {
		_ = c.tc.CloseWrite()
	}
	return c.answers(b)
}

// AlertOf returns the alert by which the peer has ended a connection.
func AlertOf(err error) (tls.AlertError, bool) {
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return alert, true
	}
	return alertIn(err, "remote error")
}

// alertIn finds the alert in an error of crypto/tls, which has a type of its own for it. op says
// whose alert it is.
func alertIn(err error, op string) (tls.AlertError, bool) {
	var e *net.OpError
	if !errors.As(err, &e) || e.Op != op {
		return 0, false
	}
	for n := range 256 {
		if a := tls.AlertError(n); a.Error() == e.Err.Error() {
			return a, true
		}
	}
	return 0, false
}
