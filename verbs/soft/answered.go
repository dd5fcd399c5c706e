package soft

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/tls13"
)

// What the answer of a peer that does not let this host connect means.

// errNoWord is the error of a peer that ends the connection instead of an answer. Daemons of 0.2.0 treat hosts that way
// that their peers.allow does not name.
var errNoWord = errors.New("the peer ended the connection without a word: its peers.allow does not name this host, it has too many connections, or it is no rdsd")

// strangerError is the error of a peer that speaks neither TLS nor MPA. It is ECONNREFUSED, because no daemon listens there.
type strangerError struct{ first []byte }

func (e *strangerError) Error() string {
	return fmt.Sprintf("what listens there is no rdsd: it answers %q (port of both hosts)", e.first[:min(len(e.first), 16)])
}

func (e *strangerError) Is(target error) bool { return target == unix.ECONNREFUSED }

// alerts say what the peer's alert about our certificate means (RFC 8446 section 6.2).
var alerts = map[tls.AlertError]string{
	42:  "it is not for this host's address (IP SAN, or its name of tls.names there), not of an authority of tls.ca there, expired, or not good for both ends",
	43:  "it is of a kind that the peer does not support",
	44:  "it was revoked",
	45:  "it has expired, or the peer's clock is wrong",
	46:  "it has a fault",
	48:  "tls.ca there does not have its authority",
	116: "this host shows none",
}

// alertError is the error of a peer that has answered with alert.
func alertError(alert tls.AlertError) error {
	switch alert {
	case tls13.AlertAccessDenied:
		return fmt.Errorf("TLS: %w: %w", verbs.ErrForbidden, alert)
	case tls13.AlertUserCanceled:
		return verbs.ErrBusy
	}
	if text := alerts[alert]; text != "" {
		return fmt.Errorf("TLS: %w: %s: %w", verbs.ErrIdentity, text, alert)
	}
	return fmt.Errorf("TLS: the peer refuses, its log may say why: %w", alert)
}

// noReply is the error of an answer to an MPA request that begins with b and is no MPA reply.
func noReply(b []byte) error {
	if len(b) == len(tls13.PlainAlert(0)) && b[0] == 21 && b[1] == 3 { // a daemon that wants TLS, and not this host
		return tls.AlertError(b[len(b)-1])
	}
	return &strangerError{b}
}

// replyFailure returns err of an MPA reply, with what it means.
func replyFailure(err error) error {
	var stranger *strangerError
	if alert, ok := tls13.AlertOf(err); ok {
		return alertError(alert)
	}
	switch {
	case errors.As(err, &stranger):
		return err
	case err == io.EOF || errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("MPA reply: %w: %w", errNoWord, err)
	}
	return fmt.Errorf("MPA reply: %w", err)
}

// byPeer reports whether err is the peer's decision about this host.
func byPeer(err error) bool {
	return errors.Is(err, verbs.ErrForbidden) || errors.Is(err, verbs.ErrIdentity) || errors.Is(err, verbs.ErrBusy)
}
