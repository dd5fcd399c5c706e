package rds

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// osYield gives the processor to another thread that is ready to run. It does not
// involve the scheduler of Go, and takes as little time as a system call can.
func osYield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
