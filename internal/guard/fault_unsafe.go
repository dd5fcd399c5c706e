//go:build amd64 || arm64

package guard

import (
	"fmt"
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
	if err := sigaction(nil, &a); err != nil {
		return err
	}
	before, a.handler = a.handler, handler()
	return sigaction(&a, nil)
}

func sigaction(set, old *action) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(set.mask), 0, 0)
	if e != 0 {
		return fmt.Errorf("rt_sigaction: %w", e)
	}
	return nil
}
