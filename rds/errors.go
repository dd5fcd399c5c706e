package rds

// Who decides which error.
//
//	in the client, before anything is submitted
//	  EAGAIN        send buffer, message ids, send memory or submission ring full; nothing to receive
//	  ENOSPC        completions or zero-copy cookies at their limit
//	  ENOBUFS       destination congested (its slot says so, or it holds its share of message ids or send memory)
//	  EMLINK        no idle destination slot
//	  EMSGSIZE      payload above the send buffer limit or 1 MiB; operation above 1 GiB or 1024 segments
//	  EOPNOTSUPP    destination of the other address family; a cookie to a host reached by RDS/TCP
//	  EINVAL        malformed address, operation, segment, range, rights, limit; a cookie not of this client; an operation id not issued; a lane, or a choice of SetAnybody, after the first send
//	  EFAULT        local memory of an atomic that is not 8 bytes at a multiple of 8
//	  deadline      SetReadDeadline, SetWriteDeadline; contexts
//	  EBADF         socket, buffer, region or client closed
//	  ENOBUFS       (ErrOverrun) what kernel peers sent found no room: the socket has ended
//	  ECONNRESET, ECONNABORTED  the daemon has ended, or has ended this session alone
//
//	by a control call to the daemon
//	  EADDRINUSE, EADDRNOTAVAIL, EACCES, ENOBUFS  Bind; ESHUTDOWN while the daemon is drained
//	  ENOMEM, ENOBUFS                             Alloc, Import
//	  EINVAL, EPERM                               Import: memory that its process can take away, or that is none
//	  EBUSY                                       Free
//	  EOPNOTSUPP                                  Addrs; Bind of the unspecified address; Import
//	  EINVAL, ENOBUFS                             Register, Expose, Release
//	  EBUSY                                       Expose: for one use, and granted to another host
//	  EPROTONOSUPPORT, EUSERS, ENOBUFS            Open
//
//	later, as the status of the operation
//	  RemoteError   with an errno: refused before it was posted (EINVAL unknown key, or an atomic that is not aligned,
//	                EACCES not granted or no right, ERANGE beyond the region, EFAULT buffer freed meanwhile,
//	                EOPNOTSUPP no atomics there, EMSGSIZE too many pieces, ENOBUFS quotas and limits); without: failed at
//	                the target
//	  Canceled, Dropped, OtherError, Unknown
//
//	later, as a notice
//	  Lost, NoSocket, PeerDown, PeerUp, GaveUp, NotGranted, Unreachable
//
// An unreachable or dead peer is no error: messages to it wait, and the notice
// says why. A send to a host that peers.allow forbids fails with EACCES,
// others with their Reason only after SetFailUnreachable. The first
// send to a destination waits until the daemon has seen it, also one that does not
// wait otherwise: that is EAGAIN if the daemon takes a second or more.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/rdsd/rdsd/internal/ipc"
)

// sentinel is an error that is also the errno that the RDS of the kernel would
// return. It is never a timeout, although syscall.EAGAIN claims to be one.
type sentinel struct {
	text string
	is   []error
}

func (e *sentinel) Error() string   { return e.text }
func (e *sentinel) Unwrap() []error { return e.is }
func (e *sentinel) Timeout() bool   { return false }
func (e *sentinel) Temporary() bool { return false }

// Errors of this package. Each is found with errors.Is, as is the errno named.
var (
	// ErrClosed: the socket, buffer, region or client was closed. It is also
	// net.ErrClosed and EBADF.
	ErrClosed error = &sentinel{"use of closed RDS socket", []error{net.ErrClosed, syscall.EBADF}}
	// ErrDaemonGone: the daemon has shut down, was upgraded or has crashed, and the
	// sockets of this client are lost. With Options.Reopen the client opens again
	// instead. Then it is the error of a socket that could not be bound again.
	// ECONNRESET.
	ErrDaemonGone error = &sentinel{"the RDS daemon is gone", []error{syscall.ECONNRESET}}
	// ErrSession: the daemon goes on, and has ended this session alone, because this
	// process broke the rules of the shared memory. It also ends a session whose
	// daemon broke them. The text has the reason. A client does not open again after
	// it, because a program that breaks a rule would break it again. ECONNABORTED.
	ErrSession error = &sentinel{"session ended by the RDS daemon", []error{syscall.ECONNABORTED}}
	// ErrOverrun: Linux kernels, which cannot be told to wait, sent more to the
	// socket than the daemon keeps for this user. The socket has lost its port. The
	// messages it had received can still be read; later ones are lost. Close it and
	// bind another. ENOBUFS.
	ErrOverrun error = &sentinel{"socket overrun by a kernel peer: messages were lost", []error{syscall.ENOBUFS}}
	// ErrNoDaemon: no daemon answers. The text names the paths tried. ENOENT.
	ErrNoDaemon = ipc.ErrNoDaemon
	// ErrVersion: client and daemon do not speak a common version.
	// EPROTONOSUPPORT.
	ErrVersion error = &sentinel{"client and daemon versions do not match", []error{syscall.EPROTONOSUPPORT}}
	// ErrMessageTooLong: the payload is above the send buffer limit or 1 MiB.
	// EMSGSIZE. Retrying does not help.
	ErrMessageTooLong error = &sentinel{"message too long", []error{syscall.EMSGSIZE}}
	// ErrWouldBlock: the call would have to wait and was told not to. EAGAIN. A receive found
	// nothing, a send a full send buffer: try again when Wait reports Message or SendSpace.
	ErrWouldBlock error = &sentinel{"operation would block", []error{syscall.EAGAIN}}
	// ErrCongested: the destination's receiver is over its limit, or the destination
	// holds its share of the process's message ids and send memory. Retry when Wait
	// reports Relief for the destination. ENOBUFS.
	ErrCongested error = &sentinel{"destination congested", []error{syscall.ENOBUFS}}
	// ErrTooManyDestinations: every destination slot of this client is in use by
	// queued messages or operations (Options.Params.Slots), or its open sockets have
	// sent to as many addresses as it has cells (Options.Params.Cells). EMLINK.
	ErrTooManyDestinations error = &sentinel{"too many destinations in use", []error{syscall.EMLINK}}
	// ErrCompletionsFull: the socket has as many completions or zero-copy cookies
	// queued or to come as it can hold. Take some first. A send that waits returns
	// this error, too, because the caller may be the one to take them. ENOSPC.
	ErrCompletionsFull error = &sentinel{"completion queue full: take completions first", []error{syscall.ENOSPC}}
	// ErrInvalid: an argument that no daemon would accept. EINVAL.
	ErrInvalid error = &sentinel{"invalid argument", []error{syscall.EINVAL}}
)

// opError is the error that the methods of this package return: which call failed,
// the address it was about if that helps, and the cause. It is a net.Error; Timeout
// is true only if a deadline has passed.
type opError struct {
	Op   string         // "open", "bind", "send", "recv", "register", ...
	Addr netip.AddrPort // zero when there is none to name
	Err  error
}

func (e *opError) Error() string {
	var b strings.Builder
	b.WriteString("rds ")
	b.WriteString(e.Op)
	if e.Addr.IsValid() {
		b.WriteByte(' ')
		b.WriteString(e.Addr.String())
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

func (e *opError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline ended the call.
func (e *opError) Timeout() bool {
	return errors.Is(e.Err, os.ErrDeadlineExceeded) || errors.Is(e.Err, context.DeadlineExceeded)
}

// Temporary is part of net.Error; it equals Timeout.
func (e *opError) Temporary() bool { return e.Timeout() }

// Errors of the data path are made once: a full queue costs no allocation.
var (
	errSendWouldBlock = &opError{Op: "send", Err: ErrWouldBlock}
	errRecvWouldBlock = &opError{Op: "recv", Err: ErrWouldBlock}
	errSendCongested  = &opError{Op: "send", Err: ErrCongested}
	errSendDeadline   = &opError{Op: "send", Err: os.ErrDeadlineExceeded}
	errRecvDeadline   = &opError{Op: "recv", Err: os.ErrDeadlineExceeded}
	errLonger         = errors.New("message longer than the buffer") // never returned to a caller
	errSendClosed     = &opError{Op: "send", Err: ErrClosed}
	errRecvClosed     = &opError{Op: "recv", Err: ErrClosed}
)

// opErr wraps err in an opError. It returns nil for nil.
func opErr(op string, addr netip.AddrPort, err error) error {
	if err == nil {
		return nil
	}
	return &opError{Op: op, Addr: addr, Err: err}
}

var (
	errUnaligned error = &sentinel{"the local memory of an atomic operation is 8 bytes at a multiple of 8", []error{syscall.EFAULT, ErrInvalid}}
	errNoRDMA    error = &sentinel{"the host is reached by RDS/TCP, which has no RDMA: a cookie is of no use there", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
	errNoAddrs   error = &sentinel{"the daemon is of a version that does not tell its addresses: name one", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
	errNoImport  error = &sentinel{"the daemon takes no memory of processes, because its version or its kernel (before Linux 5.9) is too old: use Alloc", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
	errNoOutcome error = &sentinel{"the daemon is of a version that does not tell the status of a message: leave out Notify, or upgrade it and open again", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
	errAnybody   error = &sentinel{"the daemon is of a version whose destinations meet sockets: leave out SetAnybody, or upgrade it and open again", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
	errFamily    error = &sentinel{"destination of another address family than the socket's", []error{syscall.EOPNOTSUPP, errors.ErrUnsupported}}
)

// tooLong returns ErrMessageTooLong with a text that says what is too long.
func tooLong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMessageTooLong}, args...)...)
}

// invalid returns ErrInvalid with a text that says what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
