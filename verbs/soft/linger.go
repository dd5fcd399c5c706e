package soft

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxLinger limits the connections that are being closed in order. Further ones are
// closed at once.
const maxLinger = 256

// linger delivers last and closes the connection in order: it sends a FIN and waits
// for the peer's, and reads and drops what still arrives. Otherwise the kernel would
// answer that with a reset, and the peer might lose what it has not read.
func (c *control) linger(fd int, last []byte) { c.lingerFor(fd, last, false, func() {}) }

// lingerFor is linger. With peerFirst the FIN waits for the peer's, within the time
// limit. After a rejection the peer closes anyway, and Linux siw loses the reply if
// a FIN comes in the same segment. It calls done at the end.
func (c *control) lingerFor(fd int, last []byte, peerFirst bool, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.dying) >= maxLinger {
		_ = unix.SetNonblock(fd, true)
		if len(last) > 0 {
			_, _ = unix.SendmsgN(fd, last, nil, nil, ioFlags)
		}
		unix.Close(fd)
		done()
		return
	}
	_ = unix.SetNonblock(fd, true) // os.NewFile then uses the poller
	f := os.NewFile(uintptr(fd), "tcp")
	_ = f.SetDeadline(time.Now().Add(c.opt.LingerTimeout))
	c.dying[f] = struct{}{}
	c.wg.Go(func() {
		defer func() {
			c.mu.Lock()
			delete(c.dying, f)
			c.mu.Unlock()
			f.Close()
			done()
		}()
		if _, err := f.Write(last); err != nil {
			return
		}
		if !peerFirst {
			raw, err := f.SyscallConn()
			if err != nil {
				return
			}
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		}
		b := make([]byte, 16<<10)
		for {
			if _, err := f.Read(b); err != nil {
				return
			}
		}
	})
}
