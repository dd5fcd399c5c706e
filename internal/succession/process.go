package succession

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Process is another process, by its pidfd: a process that gets its number later is not
// taken for it.
type Process struct{ fd int }

// OpenProcess returns process pid, which lives or has not been waited for. The caller calls
// Close. ESRCH: there is no such process.
func OpenProcess(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	return &Process{fd}, nil
}

// EndsWithin waits at most d for the end of the process, and reports whether it has ended.
func (p *Process) EndsWithin(d time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

// Close forgets the process.
func (p *Process) Close() { unix.Close(p.fd) }
