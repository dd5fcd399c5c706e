package afrds

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/rdsd/rdsd/rds"
)

// errno returns the kernel's errno for err.
func errno(err error) error {
	var e syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return syscall.ETIMEDOUT
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, rds.ErrTooManyDestinations):
		return syscall.ENOBUFS
	case errors.Is(err, rds.ErrCompletionsFull):
		return syscall.EAGAIN
	case errors.As(err, &e):
		return e
	}
	return syscall.EIO
}

// wouldBlock reports whether a send or receive may succeed later.
func wouldBlock(err error) bool { return errors.Is(err, rds.ErrWouldBlock) }
