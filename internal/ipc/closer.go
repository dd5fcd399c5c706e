package ipc

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/mutant"
	"golang.org/x/sys/unix"
)

const (
	maxClosing = 16                   // threads that close, of all users
	closeTime  = 2 * time.Millisecond // what one close may wait for another program before it is interrupted
)

// closer closes the daemon's ends of control connections, so that nobody waits
// for a close. The last close of a connection also drops what was not read of
// it, and with that the descriptors a process sent along. If those are the last
// of a file, closing it can take as long as the process wants: a TCP connection
// with SO_LINGER waits for its other end. Since Linux 6.16 such descriptors do
// not arrive (SO_PASSRIGHTS). Before, each user has one thread that closes for
// it, one connection after the other, and a signal ends a wait after closeTime.
type closer struct {
	mu      sync.Mutex
	users   map[uint32]*closing
	order   []*closing // have something to close, and no thread
	threads int
}

// closing is what is to be closed for one user.
type closing struct {
	uid  uint32
	fds  []int
	tid  int // of the thread that closes one; 0: none does
	turn int // counts closes
}

// close ends c: its other side sees that at once, and c is of no use any more.
func (cl *closer) close(c *net.UnixConn, uid uint32) error {
	if mutant.On(mutant.DescriptorsClosedInSession) {
		return c.Close()
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if err := raw.Control(func(f uintptr) {
		_ = unix.Shutdown(int(f), unix.SHUT_RDWR)
		fd, _ = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return err
	}
	if fd < 0 { // EMFILE
		go c.Close()
		return nil
	}
	err = c.Close() // not the last: fd is left
	cl.add(uid, fd)
	return err
}

func (cl *closer) add(uid uint32, fd int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if u := cl.users[uid]; u != nil { // a thread closes for it, or will
		u.fds = append(u.fds, fd)
		return
	}
	if cl.users == nil {
		cl.users = map[uint32]*closing{}
	}
	u := &closing{uid: uid, fds: []int{fd}}
	cl.users[uid] = u
	cl.order = append(cl.order, u)
	if cl.threads < maxClosing {
		cl.threads++
		go cl.work()
		if cl.threads == 1 {
			go cl.interrupt()
		}
	}
}

// work closes for users in turn, one connection of each, until there is nothing
// left.
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
			delete(cl.users, u.uid)
		}
	}
	cl.threads--
}

// interrupt sends a signal to each thread that closes the same connection as
// closeTime ago, until no thread is left. The signal is one that the Go runtime
// uses between its threads and ignores otherwise.
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

// refuseDescriptors has the kernel refuse descriptors that the processes
// connected to a listening socket send: EPERM at the sender. Kernels before 6.16
// cannot.
func refuseDescriptors(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}
