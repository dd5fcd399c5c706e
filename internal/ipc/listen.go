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

// errClosed matches both net.ErrClosed and os.ErrClosed.
var errClosed = fmt.Errorf("control socket: %w", errors.Join(net.ErrClosed, os.ErrClosed))

// Listener is the daemon's control socket.
type Listener struct {
	l      *net.UnixListener
	path   string
	ino    uint64 // of the socket file, 0 if another program owns that
	closer closer
	taker  taker
}

// Listen makes the control socket at path with the given permissions. It replaces a socket
// file that a dead daemon left. Errors name the path: EADDRINUSE, with the pid, if a
// program listens there; ENOENT if the directory is missing; EEXIST if the file is not a
// socket; EACCES; ENAMETOOLONG.
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

// Adopt makes a Listener of the control socket at path that another program opened. That
// program stays responsible for the file, until Own. The error is EINVAL if l is not such a socket or
// is elsewhere.
func Adopt(l *net.UnixListener, path string) (*Listener, error) {
	a := l.Addr()
	if a.Network() != "unixpacket" || a.String() != path {
		return nil, fmt.Errorf("control socket: passed was %s %s, configured is unixpacket %s: %w", a.Network(), a, path, unix.EINVAL)
	}
	l.SetUnlinkOnClose(false)
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(refuseDescriptors) // connections that wait already are not affected
	}
	return &Listener{l: l, path: path}, nil
}

// checkPath refuses paths that do not fit a socket address. It also refuses abstract
// sockets, because anybody could take their names and they have no permissions.
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

// lockDir keeps other daemons out of the directory while one checks whether the socket file
// in it is dead. Without the lock, two daemons that start at the same time would remove
// each other's file. Closing the returned file unlocks. Another program that keeps the lock
// delays the start and does not prevent it.
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
		who := "outside this pid namespace"
		if pid := c.Peer().PID; pid != 0 {
			who = fmt.Sprintf("pid %d", pid)
		}
		c.Close()
		return fmt.Errorf("control socket %s: a daemon (%s) is running there; stop it, replace it with -take-over, or choose another path with --socket: %w",
			path, who, unix.EADDRINUSE)
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

// Accept waits for the next process. Recv ends the connection with ErrProtocol if the
// process sends descriptors, but for the one of an Import once TakeImports was called.
// After Close the error is os.ErrClosed and net.ErrClosed. Other errors (EMFILE) may be
// temporary.
func (l *Listener) Accept() (*Conn, error) {
	c, err := l.l.AcceptUnix()
	if errors.Is(err, net.ErrClosed) {
		return nil, errClosed
	}
	if err != nil {
		return nil, err
	}
	return l.conn(c)
}

// conn makes the daemon's end of a connection.
func (l *Listener) conn(c *net.UnixConn) (*Conn, error) {
	conn, err := NewConn(c)
	if err != nil {
		return nil, err
	}
	conn.closer, conn.taker, conn.oob, conn.received = &l.closer, &l.taker, nil, make(chan struct{})
	return conn, nil
}

// SetDeadline bounds every Accept, those that wait included. Accept then returns
// os.ErrDeadlineExceeded. The zero time removes the bound.
func (l *Listener) SetDeadline(t time.Time) error { return l.l.SetDeadline(t) }

// Addr is the address listened on.
func (l *Listener) Addr() net.Addr { return l.l.Addr() }

// SyscallConn is the listening socket, for options that its connections inherit.
func (l *Listener) SyscallConn() (syscall.RawConn, error) { return l.l.SyscallConn() }

// Path is where the socket is.
func (l *Listener) Path() string { return l.path }

// Inode is the inode of the socket file, 0 if another program owns the file.
func (l *Listener) Inode() uint64 { return l.ino }

// Own makes l the owner of the socket file, with the given permissions. The program that
// owned it calls Leave. ino is that program's Inode. A file that was replaced
// stays as it is. From then on processes that connect see this process at the other end.
func (l *Listener) Own(ino uint64, mode fs.FileMode) error {
	if there, err := inode(l.path); err != nil || there != ino {
		return nil
	}
	l.ino = ino
	raw, err := l.l.SyscallConn()
	if err == nil {
		// The kernel takes the credentials from the process that listened last.
		err = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), unix.SOMAXCONN) })
	}
	if fi, e := os.Lstat(l.path); err == nil && (e != nil || fi.Mode().Perm() != mode) {
		err = os.Chmod(l.path, mode) // not for nothing: the file can be another user's
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// Leave has Close not remove the socket file, which is another process's from now on.
func (l *Listener) Leave() { l.ino = 0 }

// Close stops listening. It removes the socket file unless another program owns it or
// another listener has replaced it.
func (l *Listener) Close() error {
	err := l.l.Close()
	if ino, e := inode(l.path); e == nil && ino == l.ino {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
