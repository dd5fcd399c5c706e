//go:build amd64 || arm64

package guard

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// before is the handler that Go's runtime has installed. The handler in assembly reads it.
var before uintptr //nolint:unused // see above

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// onFault is the handler of SIGBUS. The kernel calls it, on the stack for signals.
func onFault() //nolint:unused // handler has its address

// handler returns the address of onFault.
func handler() uintptr

// install puts the handler in front of Go's, with the same stack and mask.
func install() error {
	var a action
	sigaction(nil, &a)
	before, a.handler = a.handler, handler()
	sigaction(&a, nil)
	return nil
}

// sigaction cannot fail: it gets a valid signal, and addresses of Go's.
func sigaction(set, old *action) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(action{}.mask), 0, 0)
}
