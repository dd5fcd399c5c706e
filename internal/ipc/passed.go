package ipc

import (
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A connection can go over from one daemon process to another. Both have the same open
// socket then. Only one of them receives and sends.

// FD is the connection's descriptor. It stays the Conn's, and is valid until Close or Leave.
// It is -1 after these.
func (c *Conn) FD() int {
	fd := -1
	if raw, err := c.c.SyscallConn(); err == nil {
		_ = raw.Control(func(f uintptr) { fd = int(f) })
	}
	return fd
}

// SyscallConn is the connection's socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.c.SyscallConn() }

// Leave closes the descriptor, and not the connection, which another process goes on with. A
// Recv that waits fails with net.ErrClosed. Leave does not block, whatever the other side has
// sent.
func (c *Conn) Leave() error {
	if c.closer != nil {
		return c.release()
	}
	return c.c.Close()
}

// TakesImports reports whether TakeImports was called.
func (c *Conn) TakesImports() bool { return c.takes }

// Conn makes a Conn of a connection that another daemon process accepted, and takes over fd,
// also after an error. The error is EINVAL if fd is not such a connection.
func (l *Listener) Conn(fd int) (*Conn, error) {
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	f := os.NewFile(uintptr(fd), "control connection")
	defer f.Close()
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", os.NewSyscallError("getsockopt SO_ACCEPTCONN", err))
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok || listens != 0 || u.LocalAddr().Network() != "unixpacket" {
		c.Close()
		return nil, fmt.Errorf("control connection: %w: the descriptor is of something else", unix.EINVAL)
	}
	return l.conn(u)
}
