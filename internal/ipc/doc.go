// Package ipc is the control protocol between a process and its daemon: one
// frame per packet of a SOCK_SEQPACKET unix socket, descriptors beside it.
// docs/ipc.md has the layouts.
//
// A frame is u16 type, u16 flags, u32 id and a body, little-endian. Requests
// carry an id of the client's choice, not 0, and each gets one answer with the
// same id: its own type, OK or Err. The daemon sends Goodbye, id 0, before it
// ends a session. The frame header, Err, Goodbye and the first eight bytes of
// Hello are the same in all versions of the protocol.
package ipc

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

const (
	// Magic starts the body of Hello.
	Magic = 0x43445352 // "RSDC"
	// Version of everything else in this package and in internal/shm.
	Version = 3

	// MaxFrame is the longest frame.
	MaxFrame = 64 << 10
	// MaxFDs is the most descriptors that travel with one frame (the kernel's
	// SCM_MAX_FD).
	MaxFDs = 253
	// MaxText is the longest text of Err and Goodbye.
	MaxText = 1024
	// MaxName is the longest process name in Hello.
	MaxName = 32
	// MaxCtl is the longest JSON answer to a Ctl request, over all its parts.
	MaxCtl = 64 << 20
	// maxCtlPart is what one part carries.
	maxCtlPart  = 32 << 10
	maxCtlParts = MaxCtl/maxCtlPart + 1

	headerSize = 8
)

// ErrProtocol is the errors.Is target when the other side sent what this
// protocol does not allow. The connection is of no use after it. EPROTO.
var ErrProtocol error = &sentinel{"control protocol error", syscall.EPROTO}

// ErrClosed is what calls return after Close: net.ErrClosed.
var ErrClosed = net.ErrClosed

// ErrGone is the errors.Is target when the daemon has ended: it closed the
// connection without a Goodbye, as it does when it dies, or its Goodbye said so.
// ECONNRESET.
var ErrGone error = &sentinel{"the daemon is gone", syscall.ECONNRESET}

// ErrNoDaemon is the errors.Is target when no daemon answers at any of the
// paths tried. ENOENT.
var ErrNoDaemon error = &sentinel{"no daemon found", syscall.ENOENT}

// sentinel is an error that is also an errno.
type sentinel struct {
	text  string
	errno syscall.Errno
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Unwrap() error { return e.errno }

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// VersionError says that the two sides speak different versions.
// errors.Is: EPROTONOSUPPORT.
type VersionError struct {
	Client, Daemon uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the client speaks version %d of the control protocol and the daemon version %d; "+
		"install both from the same release", e.Client, e.Daemon)
}

// Unwrap gives the errno.
func (e *VersionError) Unwrap() error { return syscall.EPROTONOSUPPORT }

// SessionError says that the daemon ended the session, and why. errors.Is:
// ErrGone if the daemon itself has ended, else ECONNABORTED.
type SessionError struct {
	Text string
	Ends bool // the daemon itself has ended
}

func (e *SessionError) Error() string { return "session ended by the daemon: " + e.Text }

// Unwrap gives the target for errors.Is.
func (e *SessionError) Unwrap() error {
	if e.Ends {
		return ErrGone
	}
	return syscall.ECONNABORTED
}

// errnoOf finds the errno to send for err, EIO when there is none in it.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != 0 {
		return errno
	}
	return syscall.EIO
}
