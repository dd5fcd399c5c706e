package ipc

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxTaking is how many users may have a descriptor in their takers at a time.
	maxTaking = 64
	// takeTime is how long a session waits for its user's turn, and for a descriptor.
	takeTime = 2 * time.Second
)

// taker receives the descriptors of Import. A process can send any descriptor, and the close
// of a file can take as long as the process wants: a file system in user space answers the
// close, or does not. Such a close would hold the daemon's table of descriptors, with all
// its sockets, even beyond the daemon's end. So a thread with a table of its own receives
// the descriptor and hands on only memory files, whose close waits for nobody. It closes
// anything else, if that takes for ever. Each user has one such thread at a time.
type taker struct {
	mu    sync.Mutex
	users map[any]*taking
}

// taking is one user's turns.
type taking struct {
	turn chan struct{} // has room for one: who has the turn
	here int           // guarded by taker.mu
}

// errTaking ends a session.
var errTaking error = &sentinel{"an earlier descriptor of this user is still being closed", unix.EBUSY}

// enter waits for a turn of an account. It reports false if none comes.
func (t *taker) enter(account any) bool {
	t.mu.Lock()
	u := t.users[account]
	if u == nil {
		if len(t.users) >= maxTaking {
			t.mu.Unlock()
			return false
		}
		if t.users == nil {
			t.users = map[any]*taking{}
		}
		u = &taking{turn: make(chan struct{}, 1)}
		t.users[account] = u
	}
	u.here++
	t.mu.Unlock()
	late := time.NewTimer(takeTime)
	defer late.Stop()
	select {
	case u.turn <- struct{}{}:
		return true
	case <-late.C:
		t.left(account)
		return false
	}
}

// leave ends a turn of an account.
func (t *taker) leave(account any) {
	t.mu.Lock()
	u := t.users[account]
	t.mu.Unlock()
	<-u.turn
	t.left(account)
}

func (t *taker) left(account any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.users[account]; u.here > 1 {
		u.here--
	} else {
		delete(t.users, account)
	}
}

// CanImport reports whether this kernel allows Import: a thread needs a table of descriptors
// of its own (Linux 5.9).
func CanImport() bool {
	return errors.Is(unix.CloseRange(1, 0, unix.CLOSE_RANGE_UNSHARE), unix.EINVAL) // else ENOSYS, or EPERM of a filter
}

// TakeImports has Recv take the descriptors of Import. The process that sends the frames is
// admitted by then. It must be called by the goroutine that receives.
func (c *Conn) TakeImports() error {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return err
	}
	c.takes = true
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) // kernels before 6.16 always do
	})
}

// take receives an Import and its descriptor. Message.Refused says if the descriptor is no
// memory file.
func (c *Conn) take() (*Message, error) {
	account := c.counts
	if !c.taker.enter(account) {
		return nil, errTaking
	}
	h, err := c.startHand()
	if err != nil {
		c.taker.leave(account)
		return nil, err
	}
	m, err := c.taken(h)
	if ended := h.wait(takeTime); ended {
		h.close()
		c.taker.leave(account)
	} else {
		go func() { // as long as the process likes
			h.wait(0)
			h.close()
			c.taker.leave(account)
		}()
	}
	return m, err
}

// startHand starts a thread that receives the next frame.
func (c *Conn) startHand() (*hand, error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	from := -1
	if err := raw.Control(func(fd uintptr) { from, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("take a descriptor: %w: raise ulimit -n (LimitNOFILE=)", err)
	}
	return newHand(from)
}

// taken is the message that h received.
func (c *Conn) taken(h *hand) (*Message, error) {
	r, fd, err := h.result()
	if err != nil {
		return nil, err
	}
	m := &Message{}
	if fd >= 0 {
		m.FDs = []int{fd}
	}
	if r.n < 0 {
		return nil, fmt.Errorf("take a descriptor: %w", unix.Errno(-r.n))
	}
	if m.ID, m.Body, err = ParseFrame(h.frame[:r.n]); err == nil && m.Body.Type() != TypeImport {
		err = protocolError("%v with a descriptor", m.Body.Type())
	}
	if err == nil && m.ID == 0 {
		err = protocolError("%v with id 0, which is the daemon's own", m.Body.Type())
	}
	if err != nil {
		m.CloseFDs()
		return nil, err
	}
	m.Refused = r.refused()
	return m, nil
}
