package rds

import (
	"fmt"
	"syscall"

	"github.com/rdsd/rdsd/internal/shm"
)

// Reason says why a host is not reached. It is an error: errors.Is finds its
// errno.
type Reason uint8

// Reasons of a Notice of kind Unreachable.
const (
	Forbidden Reason = Reason(shm.ReachForbidden) // peers.allow of this host does not name it: EACCES
	NoRoute   Reason = Reason(shm.ReachNoRoute)   // the network does not lead there: EHOSTUNREACH
	NotThere  Reason = Reason(shm.ReachRefused)   // no daemon listens there: ECONNREFUSED
	NoAnswer  Reason = Reason(shm.ReachTimeout)   // nothing answers: ETIMEDOUT
	Rejected  Reason = Reason(shm.ReachRejected)  // its daemon takes no connection of ours, by its peers.allow or version: ECONNABORTED
	NoReason  Reason = Reason(shm.ReachOther)     // anything else, such as TLS; rdsctl events says more: EHOSTUNREACH
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

// String is the reason in a few words.
func (r Reason) String() string {
	if x, ok := reasons[r]; ok {
		return x.text
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Error says that the host is not reached, and why.
func (r Reason) Error() string { return "host not reached: " + r.String() }

// Unwrap returns the errno; EHOSTUNREACH for reasons of later versions.
func (r Reason) Unwrap() error {
	if x, ok := reasons[r]; ok {
		return x.errno
	}
	return syscall.EHOSTUNREACH
}

// Timeout is false: no deadline of the caller has passed.
func (r Reason) Timeout() bool { return false }

// SetFailUnreachable chooses what becomes of sends to a host that is not reached
// while other messages of the socket wait for it: with true they fail with the
// Reason, with false, as at first, they wait, too. The first message to a
// destination always waits: it is what the daemon keeps trying for. Sends to a
// host that peers.allow forbids fail in any case.
func (s *Socket) SetFailUnreachable(on bool) { s.failUnreachable.Store(on) }

// unreachable is why nothing may be sent to d now, nil if something may. tx.mu is
// held.
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
