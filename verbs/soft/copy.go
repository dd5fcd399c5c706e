package soft

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gather copies ps to b, scatter b to ps.
func gather(b []byte, ps []piece) {
	for i := range ps {
		b = b[copy(b, ps[i].mem):]
	}
}

func scatter(b []byte, ps []piece) {
	for i := range ps {
		b = b[copy(ps[i].mem, b):]
	}
}

// moveAside is gather or scatter by a system call: a thread that waits in it for a page keeps neither a processor
// of the runtime nor the garbage collector. It returns false if it has not copied everything: memory
// is gone, which a copy replaces (see package guard), or the system call is not allowed.
func moveAside(trap uintptr, b []byte, ps []piece) bool {
	if notAllowed.Load() {
		return false
	}
	var iov [maxSGE + 1]unix.Iovec
	n := 0
	for i := range ps {
		iov[1+i].Base = unsafe.SliceData(ps[i].mem)
		iov[1+i].SetLen(len(ps[i].mem))
		n += len(ps[i].mem)
	}
	iov[0].Base = unsafe.SliceData(b)
	iov[0].SetLen(n)
	got, _, e := unix.Syscall6(trap, self,
		uintptr(unsafe.Pointer(&iov[0])), 1, uintptr(unsafe.Pointer(&iov[1])), uintptr(len(ps)), 0)
	if e == unix.EPERM || e == unix.ENOSYS {
		notAllowed.Store(true)
	}
	return e == 0 && int(got) == n
}

var (
	self       = uintptr(os.Getpid())
	notAllowed atomic.Bool // process_vm_readv was refused
)
