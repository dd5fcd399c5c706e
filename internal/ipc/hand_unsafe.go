package ipc

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hand is a thread with a table of descriptors of its own, in which it receives one frame
// with one descriptor. It hands the descriptor on if it is a memory file.
//
// The thread makes only system calls, and does not allocate. Go's scheduler runs on it all the
// same, at the latest when the thread ends, and may then use the descriptors of the runtime's
// poller. It ends the program if they are not there. So the thread's table keeps those two, and
// stderr, where the runtime would say why it ends the program.
type hand struct {
	report int // our end of a pair of sockets; the thread's copy of the other closes with the thread
	frame  [64]byte

	// The thread's own.
	from, to int
	keep     [5]int // from, to, stderr and the poller's, sorted
	oob      [oneRight]byte
	msg      unix.Msghdr
	iov      unix.Iovec
	out      handResult
}

// oneRight has room for one descriptor and not for two.
const oneRight = unix.SizeofCmsghdr + 4

// handResult is what the thread says: first that it has its own table, then what it received.
type handResult struct {
	n     int32 // bytes of the frame, or a negative errno
	flags int32 // of recvmsg
	seals int32 // of the file, or a negative errno: it is no memory file. 0 without a descriptor
	got   int32 // 1: there was a descriptor
}

const handResultSize = int(unsafe.Sizeof(handResult{}))

var errNoMemory error = &sentinel{"the descriptor is not of a memory file (memfd_create) or of hugetlbfs: other files can block the daemon or change their size; " +
	"copy the data into one", unix.EINVAL}

// refused is why the descriptor was not taken; nil if it was.
func (r *handResult) refused() error {
	switch {
	case r.n > 0 && r.flags&unix.MSG_CTRUNC != 0:
		return fmt.Errorf("%w: Import with more than one descriptor, or with one for which the daemon has no room", unix.EINVAL)
	case r.got == 0:
		return fmt.Errorf("%w: Import without a descriptor", unix.EINVAL)
	case r.seals < 0:
		return errNoMemory
	}
	return nil
}

// newHand starts a thread that receives a frame from the socket from, which it takes over.
func newHand(from int) (*hand, error) {
	defer unix.Close(from) // the thread has its own copy
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("take a descriptor: %w: raise ulimit -n (LimitNOFILE=)", err)
	}
	defer unix.Close(pair[1])
	h := &hand{report: pair[0], from: from, to: pair[1]}
	if h.keep, err = kept(from, pair[1]); err != nil {
		h.close()
		return nil, err
	}
	go ownThread(h.run)
	var r handResult
	if err = h.read(&r, nil); err == nil && r.n < 0 {
		err = fmt.Errorf("take a descriptor: %w", unix.Errno(-r.n))
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// ownThread runs f on a thread that ends with it. That must not be the main thread, which never
// ends.
func ownThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	another := make(chan struct{}) // this thread is taken, so the goroutine gets another
	go func() {
		runtime.LockOSThread()
		close(another)
		f()
	}()
	<-another
	runtime.UnlockOSThread()
}

// run is the thread. Nothing in it allocates, see hand.
func (h *hand) run() {
	h.out.n = -int32(ownTable())
	h.say(-1)
	if h.out.n < 0 {
		return
	}
	h.closeOthers()
	h.receive()
	closeRange(h.from, h.from+1)
	closeRange(h.to, h.to+1) // the last, because the other end takes it for the thread's end
}

// ownTable gives the thread a copy of the daemon's table. It closes nothing, so it waits for
// nobody.
func ownTable() syscall.Errno {
	const last = uintptr(^uint32(0))
	_, _, e := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, last, last, unix.CLOSE_RANGE_UNSHARE)
	return e
}

// closeOthers closes all but keep. Where the daemon has closed a connection in between, the
// close here is the last one, and can take as long as the process at its other end likes.
func (h *hand) closeOthers() {
	next := 0
	for _, fd := range h.keep {
		closeRange(next, fd)
		next = fd + 1
	}
	closeRange(next, math.MaxInt32)
}

// isPollDescriptor reports whether fd is one of the two descriptors of the runtime's poller.
//
//go:linkname isPollDescriptor internal/poll.IsPollDescriptor
func isPollDescriptor(fd uintptr) bool

// pollDescriptors are the two. They stay the same while the program runs.
var pollDescriptors = sync.OnceValue(func() (fds []int) {
	for fd := 0; fd < 1<<20 && len(fds) < 2; fd++ {
		if isPollDescriptor(uintptr(fd)) {
			fds = append(fds, fd)
		}
	}
	return fds
})

// kept is what a hand's table keeps.
func kept(from, to int) (keep [5]int, err error) {
	poller := pollDescriptors()
	if len(poller) != 2 {
		return keep, fmt.Errorf("take a descriptor: the runtime's poller has %d descriptors, not 2: %w", len(poller), unix.ENOSYS)
	}
	keep = [5]int{from, to, unix.Stderr, poller[0], poller[1]}
	slices.Sort(keep[:])
	return keep, nil
}

// closeRange closes descriptors from first up to the one before end.
func closeRange(first, end int) {
	if first < end {
		_, _, _ = syscall.Syscall(unix.SYS_CLOSE_RANGE, uintptr(first), uintptr(end-1), 0)
	}
}

// receive receives the frame, and tells and closes what came with it.
func (h *hand) receive() {
	h.iov = unix.Iovec{Base: &h.frame[0]}
	h.iov.SetLen(len(h.frame))
	h.msg = unix.Msghdr{Iov: &h.iov, Control: &h.oob[0]}
	h.msg.SetIovlen(1)
	h.msg.SetControllen(oneRight)
	n, _, e := syscall.Syscall(unix.SYS_RECVMSG, uintptr(h.from), uintptr(unsafe.Pointer(&h.msg)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if e != 0 {
		h.out.n = -int32(e)
		h.say(-1)
		return
	}
	h.out.n, h.out.flags = int32(n), h.msg.Flags
	c := (*unix.Cmsghdr)(unsafe.Pointer(&h.oob[0]))
	if h.msg.Controllen < oneRight || c.Level != unix.SOL_SOCKET || c.Type != unix.SCM_RIGHTS {
		h.say(-1)
		return
	}
	fd := *(*int32)(unsafe.Pointer(&h.oob[unix.SizeofCmsghdr]))
	h.out.got = 1
	// The kernel alone answers this. fstat would ask the file system.
	seals, _, e := syscall.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GET_SEALS, 0)
	if h.out.seals = int32(seals); e != 0 {
		h.out.seals = -int32(e)
	}
	if e != 0 || h.out.flags&unix.MSG_CTRUNC != 0 {
		h.say(-1)
	} else {
		h.say(fd)
	}
	_, _, _ = syscall.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

// say sends out, and a descriptor unless it is -1.
func (h *hand) say(fd int32) {
	h.iov = unix.Iovec{Base: (*byte)(unsafe.Pointer(&h.out))}
	h.iov.SetLen(handResultSize)
	h.msg = unix.Msghdr{Iov: &h.iov}
	h.msg.SetIovlen(1)
	if fd >= 0 {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&h.oob[0]))
		c.Level, c.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
		c.SetLen(oneRight)
		*(*int32)(unsafe.Pointer(&h.oob[unix.SizeofCmsghdr])) = fd
		h.msg.Control = &h.oob[0]
		h.msg.SetControllen(oneRight)
	}
	_, _, _ = syscall.Syscall(unix.SYS_SENDMSG, uintptr(h.to), uintptr(unsafe.Pointer(&h.msg)), unix.MSG_NOSIGNAL)
}

// read reads what the thread says, and a descriptor into fd.
func (h *hand) read(r *handResult, fd *int) error {
	b := make([]byte, handResultSize)
	oob := make([]byte, unix.CmsgSpace(4))
	for ended := false; ; {
		n, oobn, flags, _, err := unix.Recvmsg(h.report, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 && !ended {
			ended = true // recvmsg(2) can see the other side's close before its last message
			continue
		}
		if err != nil || n != handResultSize {
			return fmt.Errorf("take a descriptor: %w", unix.ETIMEDOUT)
		}
		fds, err := parseFDs(oob[:oobn])
		if err != nil || fd == nil || len(fds) != 1 {
			closeFDs(fds)
		} else {
			*fd = fds[0]
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return fmt.Errorf("take a descriptor: %w: raise ulimit -n (LimitNOFILE=)", unix.EMFILE)
		}
		*r = *(*handResult)(unsafe.Pointer(&b[0]))
		return nil
	}
}

// result is what the thread received. It waits for at most takeTime.
func (h *hand) result() (r handResult, fd int, err error) {
	fd = -1
	h.limit(takeTime)
	err = h.read(&r, &fd)
	return r, fd, err
}

// wait waits until the thread has ended, for at most d unless d is 0.
func (h *hand) wait(d time.Duration) (ended bool) {
	h.limit(d)
	var b [1]byte
	for {
		n, _, _, _, err := unix.Recvmsg(h.report, b[:], nil, 0)
		switch {
		case err == unix.EINTR, err == nil && n > 0: // a result that came late
		default:
			return err == nil
		}
	}
}

// limit bounds the next reads.
func (h *hand) limit(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d))
	_ = unix.SetsockoptTimeval(h.report, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

func (h *hand) close() { unix.Close(h.report) }
