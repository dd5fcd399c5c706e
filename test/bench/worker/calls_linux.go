package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CallsExtra is the Extra that has the system calls per message.
const CallsExtra = "syscalls_per_msg"

// callEvent is the kernel's event for each system call, in the tracing file system.
const callEvent = "events/raw_syscalls/sys_enter/id"

// notYield leaves yields out: their number says how long a process waited.
var notYield = fmt.Sprintf("id != %d", unix.SYS_SCHED_YIELD)

// MayCountCalls says why this process may not count system calls. It needs the rights to open
// performance counters and to read the tracing file system, which root has.
func MayCountCalls() error {
	c, err := countCalls([]int{os.Getpid()})
	if err == nil {
		c.close()
	}
	return err
}

// callCounter counts the system calls of processes, other than sched_yield.
type callCounter struct {
	fds []int // a counter for each thread, which also counts the threads that it starts
}

// countCalls counts from now on what the threads of pids do, and the threads that they start.
func countCalls(pids []int) (*callCounter, error) {
	event, err := callEventID()
	if err != nil {
		return nil, err
	}
	c := &callCounter{}
	for _, pid := range pids {
		if err := c.add(event, pid); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// add opens the counters of a process.
func (c *callCounter) add(event uint64, pid int) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Size: unix.PERF_ATTR_SIZE_VER0, Config: event, Bits: unix.PerfBitInherit}
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		fd, err := unix.PerfEventOpen(&attr, id, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) { // it has just ended
			continue
		}
		if err != nil {
			return fmt.Errorf("open a performance counter: %w", err)
		}
		c.fds = append(c.fds, fd)
		if err := unix.IoctlSetString(fd, unix.PERF_EVENT_IOC_SET_FILTER, notYield); err != nil {
			return fmt.Errorf("leave yields out of a performance counter: %w", err)
		}
	}
	return nil
}

// total is how many calls there were since countCalls.
func (c *callCounter) total() (n uint64, err error) {
	var b [8]byte
	for _, fd := range c.fds {
		if _, err := unix.Read(fd, b[:]); err != nil {
			return 0, fmt.Errorf("read a performance counter: %w", err)
		}
		n += binary.NativeEndian.Uint64(b[:])
	}
	return n, nil
}

func (c *callCounter) close() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
}

// callEventID is the number of callEvent. If the tracing file system is mounted nowhere,
// callEventID mounts it where only its own descriptor reaches it.
func callEventID() (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/sys/kernel/tracing", callEvent))
	if errors.Is(err, os.ErrNotExist) {
		b, err = readDetached("tracefs", callEvent)
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// readDetached reads a short file of a file system that need not be mounted.
func readDetached(fs, name string) ([]byte, error) {
	config, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open file system %s: %w", fs, err)
	}
	defer unix.Close(config)
	if err := unix.FsconfigCreate(config); err != nil {
		return nil, fmt.Errorf("set up file system %s: %w", fs, err)
	}
	root, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount file system %s: %w", fs, err)
	}
	defer unix.Close(root)
	fd, err := unix.Openat(root, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s of %s: %w", name, fs, err)
	}
	defer unix.Close(fd)
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", name, fs, err)
	}
	return b[:n], nil
}
