// Package tls13 secures a byte stream with TLS 1.3 (RFC 8446) inside an event loop
// that reads and writes the stream itself. The handshake is that of crypto/tls, on a
// blocking connection. Afterwards the traffic keys and the descriptor go to the
// event loop, which makes and opens records without a goroutine, a lock or an
// allocation. In Go's FIPS 140-3 mode crypto/tls makes and opens them, on the event loop's memory.
// On the wire it is plain TLS 1.3: the other end may be any
// implementation.
//
// It leaves out early data, resumption (it makes no tickets and ignores those of the
// peer), and client authentication after the handshake.
//
// Not covered by docs/stability.md: any release may change this package.
package tls13

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// Sizes of a record, in bytes.
const (
	HeaderLen = 5
	MaxPlain  = 1 << 14                    // content of one record
	Overhead  = HeaderLen + 1 + tagLen     // header, content type, tag
	MaxRecord = HeaderLen + MaxPlain + 256 // that a peer may send, padding included

	tagLen = 16
)

// Content types.
const (
	typeCCS       = 20
	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23
)

// Alerts that this package sends (RFC 8446 section 6).
const (
	AlertCloseNotify       = 0
	AlertAccessDenied      = 49
	AlertUnexpectedMessage = 10
	AlertBadRecordMAC      = 20
	AlertRecordOverflow    = 22
	AlertDecodeError       = 50
	AlertInternal          = 80
	AlertUserCanceled      = 90
)

// Error ends a connection: the peer broke a rule of TLS, or reported that this side
// did.
type Error struct {
	// Alert is what has to be sent to the peer; AlertCloseNotify (0) means nothing.
	Alert uint8
	Err   error
}

func (e *Error) Error() string { return "TLS: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func broken(alert uint8, format string, args ...any) *Error {
	return &Error{alert, fmt.Errorf(format, args...)}
}

// Causes of an Error, for errors.Is.
var (
	ErrMAC      = errors.New("a record's authentication tag is wrong: it was damaged or forged")
	ErrOverflow = errors.New("a record is longer than TLS allows")
	ErrType     = errors.New("a record of a type that has no place here")
	ErrMessage  = errors.New("a handshake message that has no place here")
	ErrIdle     = errors.New("too many records in a row without data")
	ErrUpdates  = errors.New("too many key updates for so few records with data")
)

// alertError is a fatal alert of the peer, as crypto/tls names it.
func alertError(code uint8) *Error {
	return &Error{Err: fmt.Errorf("the peer's alert: %w", tls.AlertError(code))}
}
