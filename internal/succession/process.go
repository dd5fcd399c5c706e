package succession

import (
	"fmt"
	"os"
	"syscall"
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

// PidfdProcess is the process of a pidfd, which it takes. EINVAL: the descriptor is no pidfd.
func PidfdProcess(fd int) (*Process, error) {
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err == unix.EBADF {
		unix.Close(fd)
		return nil, fmt.Errorf("the descriptor is no pidfd: %w", unix.EINVAL)
	}
	return &Process{fd}, nil
}

// PeerProcess is the process that made the other end of a unix socket. ESRCH: it has ended, or it
// is in a pid namespace that cannot be seen from here and the kernel is older than 6.5.
func PeerProcess(c syscall.Conn) (p *Process, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		var pidfd int
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			p = &Process{pidfd}
			return
		}
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			err = os.NewSyscallError("getsockopt SO_PEERCRED", err)
		} else if p, err = nil, unix.ESRCH; cred.Pid != 0 {
			p, err = OpenProcess(int(cred.Pid))
		}
	}); e != nil {
		return nil, e
	}
	return p, err
}

// EndsWithin waits at most d for the end of the process, and reports whether it has ended. A nil
// Process is one that cannot be seen: it has not ended, for all that is known.
func (p *Process) EndsWithin(d time.Duration) bool {
	if p == nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

// Close forgets the process, which may be nil.
func (p *Process) Close() {
	if p != nil {
		unix.Close(p.fd)
	}
}
