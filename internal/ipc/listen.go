package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errClosed is net.ErrClosed and os.ErrClosed, whichever the caller asks for.
var errClosed = fmt.Errorf("control socket: %w", errors.Join(net.ErrClosed, os.ErrClosed))

// Listener is the daemon's control socket.
type Listener struct {
	l       *net.UnixListener
	path    string
	ino     uint64
	adopted bool // its file is somebody else's
	closer  closer
}

// Listen makes the control socket at path with the given permissions. A socket
// file that a dead daemon left is replaced. Errors name the path: EADDRINUSE,
// with the pid, when a program listens there; ENOENT, the directory is missing;
// EEXIST, the file is something else; EACCES; ENAMETOOLONG.
func Listen(path string, mode fs.FileMode) (*Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	dir, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := removeDead(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return raw.Control(refuseDescriptors) }}
	any, err := lc.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l := any.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // see Close
	ln := &Listener{l: l, path: path}
	if err = os.Chmod(path, mode); err == nil {
		ln.ino, err = inode(path)
	}
	if err != nil {
		l.Close()
		os.Remove(path)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return ln, nil
}

// Adopt makes a Listener of a control socket that another program opened, at
// path: that program also keeps its file. EINVAL: it is not such a socket, or
// elsewhere.
func Adopt(l *net.UnixListener, path string) (*Listener, error) {
	a := l.Addr()
	if a.Network() != "unixpacket" || a.String() != path {
		return nil, fmt.Errorf("control socket: passed was %s %s, configured is unixpacket %s: %w", a.Network(), a, path, unix.EINVAL)
	}
	l.SetUnlinkOnClose(false)
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(refuseDescriptors) // not for connections that wait already
	}
	return &Listener{l: l, path: path, adopted: true}, nil
}

// checkPath refuses what does not fit a socket address, and abstract sockets,
// which anybody could take and which have no permissions.
func checkPath(path string) error {
	limit := len(unix.RawSockaddrUnix{}.Path) - 1
	if path == "" || len(path) > limit {
		return fmt.Errorf("control socket %q: path of %d bytes, a socket's has 1 to %d: %w", path, len(path), limit, unix.ENAMETOOLONG)
	}
	if path[0] == '@' {
		return fmt.Errorf("control socket %q: abstract sockets are not supported: %w", path, unix.EINVAL)
	}
	return nil
}

// lockDir keeps other daemons out of the directory while one looks whether
// the socket file in it is dead: two that start at once would remove each
// other's. The lock goes with the file returned. Somebody else who sits on the
// lock delays the start and does not prevent it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: directory %s does not exist; create it, or choose another path with --socket: %w", dir, unix.ENOENT)
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	for range 50 {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return f, nil
}

// removeDead removes the socket file of a daemon that is gone.
func removeDead(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket %s: there is a file that is not a socket; move it, or choose another path with --socket: %w", path, unix.EEXIST)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := dialConn(ctx, path)
	switch {
	case err == nil:
		pid := c.Peer().PID
		c.Close()
		return fmt.Errorf("control socket %s: a daemon (pid %d) is running there; stop it, or choose another path with --socket: %w",
			path, pid, unix.EADDRINUSE)
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("control socket: left over from a dead daemon: %w", err)
		}
		return nil
	case errors.Is(err, unix.EPROTOTYPE), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("control socket %s: in use by another program: %w (%w)", path, unix.EADDRINUSE, err)
	default:
		return err
	}
}

func inode(path string) (uint64, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return fi.Sys().(*syscall.Stat_t).Ino, nil
}

// Accept waits for the next process. Descriptors that it sends with a frame are
// not taken: Recv ends the connection with ErrProtocol. After Close the error is os.ErrClosed and
// net.ErrClosed; others (EMFILE) may pass.
func (l *Listener) Accept() (*Conn, error) {
	c, err := l.l.AcceptUnix()
	if errors.Is(err, net.ErrClosed) {
		return nil, errClosed
	}
	if err != nil {
		return nil, err
	}
	conn, err := NewConn(c)
	if err != nil {
		return nil, err
	}
	conn.closer, conn.oob = &l.closer, nil
	return conn, nil
}

// SyscallConn is the listening socket, for options that its connections inherit.
func (l *Listener) SyscallConn() (syscall.RawConn, error) { return l.l.SyscallConn() }

// Path is where the socket is.
func (l *Listener) Path() string { return l.path }

// Close stops listening and removes the socket file, if it is still this
// listener's.
func (l *Listener) Close() error {
	err := l.l.Close()
	if l.adopted {
		return err
	}
	if ino, e := inode(l.path); e == nil && ino == l.ino {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
