package ipc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// mostCgroup bounds what is read of /proc/PID/cgroup: a line of a path for each hierarchy.
const mostCgroup = 64 << 10

// ErrPeerEnded says that the process that made a connection has ended.
var ErrPeerEnded = errors.New("the process that connected has ended")

// Cgroup returns the /proc/PID/cgroup of the process that made the connection. The error is
// ErrPeerEnded if the process has ended; it may have handed the connection on. Another error says
// that the process is of another pid namespace, that /proc does not show it, or what failed, such
// as EMFILE. Since Linux 6.5 (SO_PEERPIDFD) the file of a later process with the same pid is never
// returned.
func (c *Conn) Cgroup() ([]byte, error) {
	if c.peer.PID <= 0 {
		return nil, errors.New("the daemon is in another pid namespace: give its container that of the host (hostPID: true, --pid=host)")
	}
	process, err := option(c.c, func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	switch {
	case err == nil:
		defer unix.Close(process)
	case errors.Is(err, unix.ENOPROTOOPT): // an older kernel
		process = -1
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESRCH): // it was reaped; EINVAL before Linux 6.16
		return nil, fmt.Errorf("%w (%w)", ErrPeerEnded, err)
	default:
		return nil, fmt.Errorf("SO_PEERPIDFD: %w", err)
	}
	path := fmt.Sprintf("/proc/%d/cgroup", c.peer.PID)
	text, err := readSome(path, mostCgroup)
	if ended(process) || errors.Is(err, unix.ESRCH) {
		return nil, ErrPeerEnded
	}
	if errors.Is(err, os.ErrNotExist) && unix.Kill(c.peer.PID, 0) == unix.ESRCH {
		return nil, ErrPeerEnded // an older kernel has not said so
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the daemon must see the processes of others in /proc (ProtectProc=default in its unit, no hidepid)", err)
	}
	return text, err
}

func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ended reports whether the process with this descriptor has ended. -1 has not.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && pidfd >= 0
}
