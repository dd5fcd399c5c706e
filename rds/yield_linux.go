package rds

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// osYield gives the processor to another thread that wants it. It does not go
// through the scheduler of Go: the call is as short as a system call can be.
func osYield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
