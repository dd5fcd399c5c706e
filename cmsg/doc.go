// Package cmsg is RDS's control messages and option structs: Go types, and
// their encoding in the layout the Linux kernel has on 64-bit machines
// (include/uapi/linux/rds.h), byte for byte and in host byte order.
//
// Send and Recv are whole control buffers, as sendmsg takes and recvmsg
// returns them; Next and Append walk and build chains of any level. Nothing
// here is kept between calls or shared; values may be used concurrently as any
// struct may.
//
// Errors are *Error and match the errno the kernel answers with: errors.Is(err,
// unix.EINVAL).
package cmsg

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Error says what is wrong with a control message, and which errno that is.
type Error struct {
	Errno unix.Errno
	What  string
}

func (e *Error) Error() string { return fmt.Sprintf("cmsg: %s: %v", e.What, e.Errno) }

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

func invalid(format string, args ...any) error {
	return &Error{unix.EINVAL, fmt.Sprintf(format, args...)}
}

func tooLarge(format string, args ...any) error {
	return &Error{unix.EMSGSIZE, fmt.Sprintf(format, args...)}
}
