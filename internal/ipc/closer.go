package ipc

import (
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxClosing = 16                   // threads that close, of all users
	closeTime  = 2 * time.Millisecond // after which a close that waits for another program is interrupted
)

// closer closes the daemon's ends of control connections in threads of its own, so that no
// session waits for a close. The last close of a connection also drops its unread frames,
// and with them the descriptors that a process sent along. Closing the last descriptor of a
// file can take as long as the process wants: a TCP connection with SO_LINGER waits for its
// other end. Since Linux 6.16 such descriptors do not arrive (SO_PASSRIGHTS). On older
// kernels each user has one thread that closes its connections one after the other. A
// signal interrupts a close after closeTime.
type closer struct {
	mu      sync.Mutex
	users   map[any]*closing
	order   []*closing // users with something to close and without a thread
	threads int
}

// closing is the connections that are to be closed for one user.
type closing struct {
	account any
	fds     []int
	tid     int // of the user's thread, 0 if it has none
	turn    int // counts closes
}

// release closes this process's descriptor of c. It is the last one unless another process
// has the connection, too. c must not be used afterwards.
func (cl *closer) release(c *net.UnixConn, account any) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if err := raw.Control(func(f uintptr) {
		fd, _ = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return err
	}
	if fd < 0 { // EMFILE
		go c.Close()
		return nil
	}
	err = c.Close() // not the last descriptor: fd is left
	cl.add(account, fd)
	return err
}

func (cl *closer) add(account any, fd int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if u := cl.users[account]; u != nil { // the user has a thread, or will get one
		u.fds = append(u.fds, fd)
		return
	}
	if cl.users == nil {
		cl.users = map[any]*closing{}
	}
	u := &closing{account: account, fds: []int{fd}}
	cl.users[account] = u
	cl.order = append(cl.order, u)
	if cl.threads < maxClosing {
		cl.threads++
		go cl.work()
		if cl.threads == 1 {
			go cl.interrupt()
		}
	}
}

// work closes connections until there are none left. The users take turns, one connection
// each.
func (cl *closer) work() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for len(cl.order) > 0 {
		u := cl.order[0]
		cl.order = cl.order[1:]
		fd := u.fds[0]
		u.fds = u.fds[1:]
		u.tid = unix.Gettid()
		u.turn++
		cl.mu.Unlock()
		unix.Close(fd)
		cl.mu.Lock()
		u.tid = 0
		if len(u.fds) > 0 {
			cl.order = append(cl.order, u)
		} else {
			delete(cl.users, u.account)
		}
	}
	cl.threads--
}

// interrupt sends a signal to each thread whose close has lasted closeTime, until no thread
// is left. It uses a signal that the Go runtime uses between its threads and ignores
// otherwise.
func (cl *closer) interrupt() {
	before := map[*closing]int{}
	for {
		time.Sleep(closeTime)
		cl.mu.Lock()
		for _, u := range cl.users {
			if u.tid != 0 && before[u] == u.turn {
				_ = unix.Tgkill(unix.Getpid(), u.tid, unix.SIGURG)
			}
		}
		clear(before)
		for _, u := range cl.users {
			before[u] = u.turn
		}
		done := cl.threads == 0
		cl.mu.Unlock()
		if done {
			return
		}
	}
}

// refuseDescriptors makes the kernel refuse descriptors that processes send over
// connections to a listening socket. The sender gets EPERM. Kernels before 6.16 cannot
// refuse them.
func refuseDescriptors(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}
