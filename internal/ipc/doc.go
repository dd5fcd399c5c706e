// Package ipc is the control protocol between a process and its daemon: requests and
// answers in frames over a unix socket. docs/ipc.md has the layouts.
//
// A frame is one packet of a SOCK_SEQPACKET socket, with descriptors beside it: u16 type,
// u16 flags, u32 id and a body, little-endian. A request has an id of the client's choice,
// not 0. Its one answer has the same id and is of the request's own answer type, OK or Err.
// The daemon sends Goodbye, with id 0, before it ends a session. The frame header, Err,
// Goodbye and the first eight bytes of Hello are the same in all versions of the protocol.
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
	// Version is the version of everything else in this package and in internal/shm.
	Version = 3

	// MaxFrame is the longest frame.
	MaxFrame = 64 << 10
	// MaxFDs is the largest number of descriptors in one frame (the kernel's SCM_MAX_FD).
	MaxFDs = 253
	// MaxText is the longest text of Err and Goodbye.
	MaxText = 1024
	// MaxName is the longest process name in Hello.
	MaxName = 32
	// MaxAddrs is the most addresses in AddrsOK.
	MaxAddrs = 1024
	// MaxCtl is the longest JSON answer to a Ctl request, over all its parts.
	MaxCtl = 64 << 20
	// maxCtlPart is the most bytes of an answer in one CtlPart.
	maxCtlPart  = 32 << 10
	maxCtlParts = MaxCtl/maxCtlPart + 1

	headerSize = 8
)

// Features, in Hello what the client knows and in HelloOK what both know.
const (
	// FeatureRefuses says that the daemon may refuse a destination, or cookies to it
	// (peers.allow, tcp.peers). Then the client does not submit a message to a destination
	// before the daemon has opened it.
	FeatureRefuses uint64 = 1
	// FeatureAddrs says that the daemon answers Addrs.
	FeatureAddrs uint64 = 2
	// FeatureImport says that the daemon answers Import, and takes its descriptor.
	FeatureImport uint64 = 4
	// FeatureNotify says that the daemon tells the status of a message that asks for it
	// (shm.SubNotify).
	FeatureNotify uint64 = 8
	// FeatureTakeOver says that the daemon answers TakeOver. It is for RoleCtl.
	FeatureTakeOver uint64 = 16
	// FeatureAnybody says that the daemon knows destinations that lead to whichever socket is
	// bound (shm.DestAnybody).
	FeatureAnybody uint64 = 32
	// Features are all features of RoleClient.
	Features = FeatureRefuses | FeatureAddrs | FeatureImport | FeatureNotify | FeatureAnybody
)

// ErrProtocol says that the other side sent something that this protocol does not allow.
// The connection cannot be used any more. Its errno is EPROTO.
var ErrProtocol error = &sentinel{"control protocol error", syscall.EPROTO}

// ErrClosed is what calls return after Close: net.ErrClosed.
var ErrClosed = net.ErrClosed

// ErrGone says that the daemon has ended: it closed the connection without a Goodbye, as it
// does when it dies, or its Goodbye said so. Its errno is ECONNRESET.
var ErrGone error = &sentinel{"the daemon is gone", syscall.ECONNRESET}

// ErrNoDaemon says that no daemon answers at any of the paths tried. Its errno is ENOENT.
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

// VersionError says that the two sides have different versions. Its errno is
// EPROTONOSUPPORT.
type VersionError struct {
	Client, Daemon uint32
}

func (v *VersionError) Error() string {
	return fmt.Sprintf("the client speaks version %d of the control protocol and the daemon version %d; "+
		"install both from the same release", v.Client, v.Daemon)
}

// Unwrap returns the errno.
func (v *VersionError) Unwrap() error { return syscall.EPROTONOSUPPORT }

// SessionError says that the daemon ended the session, and why. It unwraps to ErrGone if
// the daemon itself has ended, else to ECONNABORTED.
type SessionError struct {
	Text string
	Ends bool // the daemon itself has ended
}

func (s *SessionError) Error() string { return "session ended by the daemon: " + s.Text }

// Unwrap returns ErrGone or ECONNABORTED.
func (s *SessionError) Unwrap() error {
	if s.Ends {
		return ErrGone
	}
	return syscall.ECONNABORTED
}

// errnoOf is the errno to send for err. It is EIO if err has none.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != 0 {
		return errno
	}
	return syscall.EIO
}
