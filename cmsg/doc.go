// Package cmsg encodes and decodes the control messages and socket options of RDS,
// as the Linux kernel lays them out on 64-bit machines (include/uapi/linux/rds.h):
// byte for byte and in host byte order.
//
// [Send] is the control data of a sendmsg and [Recv] that of a recvmsg. [Next] and
// [Append] walk and build chains of control messages of any level. The package keeps
// nothing between calls, and its values may be used by several goroutines as any
// struct may.
//
// Errors are of type *Error and match the errno of the kernel: errors.Is(err,
// unix.EINVAL).
//
// Not covered by docs/stability.md: any release may change this package.
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
