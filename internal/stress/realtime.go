package stress

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// realTime gives the calling goroutine the lowest real-time priority. The printer uses it. undo
// restores the old priority.
func realTime() (undo func(), err error) {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("-R: real-time priority (needs CAP_SYS_NICE): %w", err)
	}
	return func() {
		normal := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
		if unix.SchedSetAttr(0, &normal, 0) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}
