package daemon

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollWait blocks up to ms milliseconds. EINTR counts as nothing ready.
func epollWait(ep int, evs []unix.EpollEvent, ms int) int {
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), uintptr(ms), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
