package ipc

import "golang.org/x/sys/unix"

// SendLast sends the last frame of a connection, which says why it ends. The frame finds room
// although the other side's queue is full, because the queue is widened first: so a process that
// has not read is told as well, as soon as it reads again. Where the
// kernel does not let the queue grow (net.core.wmem_max), SendLast blocks and fails as Send does.
func (c *Conn) SendLast(m Body) error {
	c.widen()
	return c.Send(0, m)
}

// widen doubles what the other side's queue takes, up to twice net.core.wmem_max.
func (c *Conn) widen() {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// The kernel says twice what it was asked for (sock_setsockopt in net/core/sock.c).
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, n)
		}
	})
}
