//go:build amd64 || arm64

package guard

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// before is the handler that Go's runtime has installed. The handler in assembly reads it.
var before uintptr

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// onFault is the handler of SIGBUS. The kernel calls it, on the stack for signals.
func onFault()

// handler returns the address of onFault.
func handler() uintptr

// install puts the handler in front of Go's, with the same stack and mask.
func install() error {
	var a action
	err := sigaction(nil, &a)
	if err == 0 {
		before, a.handler = a.handler, handler()
		err = sigaction(&a, nil)
	}
	if err != 0 {
		return os.NewSyscallError("rt_sigaction", err)
	}
	return nil
}

func sigaction(set, old *action) unix.Errno {
	_, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(set.mask), 0, 0)
	return err
}
