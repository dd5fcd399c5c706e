package ipc

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel counts descriptors that were sent and not received against the user of the
// sender (ETOOMANYREFS), also after the sender has closed its end. So the daemon has at most
// one frame with descriptors unread on a connection: AwaitReceived comes before each. A
// connection that ends with such a frame stays open, shut down, until the frame was received
// or dropped.

// unread reports whether the other side of the socket fd has not received all that was sent.
// What was sent to a socket that is closed is dropped. While the kernel notifies the sender
// that a frame was received, it still counts one byte of it.
func unread(fd uintptr) bool {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) // SIOCOUTQ
	return err == nil && n > 1
}

// AwaitReceived waits until the other side has received all that was sent, or is closed. It
// waits as long as a Send.
func (c *Conn) AwaitReceived() error {
	if err := c.limitSend(); err != nil {
		return err
	}
	err := c.awaitReceived()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.Unread() {
		return nil // the time has passed before the first look, if this thread did not run
	}
	return err
}

func (c *Conn) awaitReceived() error {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Write(func(fd uintptr) bool { return !unread(fd) })
}

// Unread reports whether the other side has not received all that was sent.
func (c *Conn) Unread() (is bool) {
	if raw, err := c.c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { is = unread(fd) })
	}
	return is
}

// Gave says that another daemon process may have sent descriptors on the connection.
func (c *Conn) Gave() { c.gave.Store(true) }

// Received is closed when the connection is closed at this end, and the other side has
// received all descriptors that were sent to it, or is closed, too.
func (c *Conn) Received() <-chan struct{} { return c.received }

// linger releases the connection, which is shut down, when Received says. Other goroutines
// may give a Send a time in between.
func (c *Conn) linger() error {
	if !c.gave.Load() || !c.Unread() {
		return c.release()
	}
	go func() {
		for {
			_ = c.c.SetWriteDeadline(time.Time{})
			if err := c.awaitReceived(); !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
		}
		_ = c.release()
	}()
	return nil
}

// release closes this process's descriptor, in a thread that may wait, unless it is held.
func (c *Conn) release() error {
	c.holding.Lock()
	defer c.holding.Unlock()
	if c.held {
		c.due = true
		return nil
	}
	defer c.receivedOnce.Do(func() { close(c.received) })
	return c.closer.release(c.c, c.counts)
}

// Hold keeps the descriptor of a connection at the daemon's end until Let, whatever the other
// side receives: another daemon process is being sent it. It reports false if there is none any
// more.
func (c *Conn) Hold() bool {
	c.holding.Lock()
	defer c.holding.Unlock()
	c.held = c.FD() >= 0
	return c.held
}

// Let ends Hold.
func (c *Conn) Let() {
	c.holding.Lock()
	c.held = false
	due := c.due
	c.holding.Unlock()
	if due {
		_ = c.release()
	}
}
