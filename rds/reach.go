package rds

import (
	"fmt"
	"syscall"

	"github.com/rdsd/rdsd/internal/shm"
)

// Reason says why a host is not reached. It is an error that matches an errno.
type Reason uint8

// Reasons of a Notice of kind Unreachable.
const (
	Forbidden Reason = Reason(shm.ReachForbidden) // peers.allow of this host does not name the host: EACCES
	NoRoute   Reason = Reason(shm.ReachNoRoute)   // the network has no route to the host: EHOSTUNREACH
	NotThere  Reason = Reason(shm.ReachRefused)   // no daemon listens at the host: ECONNREFUSED
	NoAnswer  Reason = Reason(shm.ReachTimeout)   // nothing answers: ETIMEDOUT
	Rejected  Reason = Reason(shm.ReachRejected)  // the host's daemon rejects this host, by its peers.allow or its version: ECONNABORTED
	NoReason  Reason = Reason(shm.ReachOther)     // another reason, such as TLS; rdsctl events says more: EHOSTUNREACH
)

var reasons = map[Reason]struct {
	text  string
	errno syscall.Errno
}{
	Forbidden: {"peers.allow of this host does not name it", syscall.EACCES},
	NoRoute:   {"no route to it", syscall.EHOSTUNREACH},
	NotThere:  {"no daemon listens there", syscall.ECONNREFUSED},
	NoAnswer:  {"nothing answers", syscall.ETIMEDOUT},
	Rejected:  {"its daemon rejects this host", syscall.ECONNABORTED},
	NoReason:  {"no connection", syscall.EHOSTUNREACH},
}

// String returns the reason in a few words.
func (r Reason) String() string {
	if x, ok := reasons[r]; ok {
		return x.text
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Error returns that the host is not reached, and why.
func (r Reason) Error() string { return "host not reached: " + r.String() }

// Unwrap returns the errno.
func (r Reason) Unwrap() error {
	if x, ok := reasons[r]; ok {
		return x.errno
	}
	return syscall.EHOSTUNREACH
}

// Timeout returns false: no deadline of the caller has passed.
func (r Reason) Timeout() bool { return false }

// SetFailUnreachable chooses what becomes of sends to a host that is not reached
// while other messages of the socket wait for it. With true they fail with the
// Reason. With false, the default, they wait, too. The first message to a
// destination always waits, so that the daemon goes on trying. Sends to a host that
// peers.allow forbids always fail.
func (s *Socket) SetFailUnreachable(on bool) { s.failUnreachable.Store(on) }

// unreachable returns why nothing may be sent to d now, or nil. tx.mu is held.
func (t *tx) unreachable(s *Socket, d *dest) error {
	why := Reason(d.shared.LoadUnreachable())
	if why == 0 || !d.isOpen() {
		return nil
	}
	if why == Forbidden {
		return why
	}
	if s.failUnreachable.Load() && d.pending > 0 {
		if t.reap(); d.pending > 0 {
			return why
		}
	}
	return nil
}
