package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Doorbell is a pipe that wakes a sleeping side. The side that sleeps has Recv, the side
// that rings has Send.
//
// A doorbell is not an eventfd, because an eventfd is one open file for both sides. The
// other side could clear its O_NONBLOCK and fill the counter, and the next ring would block
// for good. The ends of a pipe are two open files, and each side has only its own.
type Doorbell struct {
	Recv, Send int // -1 when closed
}

// NewDoorbell makes a doorbell, both ends close-on-exec and non-blocking. The side that
// sleeps keeps a copy of Send: if the side that rings closes its own, Recv must not poll as
// "hung up" for ever.
func NewDoorbell() (*Doorbell, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("doorbell: %w", explain("pipe2", err))
	}
	return &Doorbell{Recv: p[0], Send: p[1]}, nil
}

// AdoptDoorbell makes a doorbell of the ends that another process of the same side had. recv
// is -1 if that side rings. They are the doorbell's from then on. After an error they are
// still the caller's. The error says that an end is none, or that its use could block.
func AdoptDoorbell(recv, send int) (*Doorbell, error) {
	used, access := recv, unix.O_RDONLY
	if recv < 0 {
		used, access = send, unix.O_WRONLY
	}
	// The other side has the same open file as the other end, and may have changed its flags.
	for _, fd := range []int{used, send} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, fmt.Errorf("doorbell: %w", explain("fstat", err))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFIFO {
			return nil, fmt.Errorf("doorbell: %w: not a pipe", unix.EINVAL)
		}
	}
	flags, err := unix.FcntlInt(uintptr(used), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("doorbell: %w", explain("fcntl", err))
	}
	if flags&unix.O_NONBLOCK == 0 || flags&unix.O_ACCMODE != access {
		return nil, fmt.Errorf("doorbell: %w: the end blocks, or is the wrong one (flags %#x)", unix.EINVAL, flags)
	}
	return &Doorbell{Recv: recv, Send: send}, nil
}

// Close closes the ends that are still here. A caller that has handed over an end has set
// it to -1.
func (d *Doorbell) Close() error {
	return errors.Join(closeFD(&d.Recv), closeFD(&d.Send))
}

// CloseRecv closes the Recv end after it was handed over.
func (d *Doorbell) CloseRecv() error { return closeFD(&d.Recv) }

// closeFD closes *fd unless it is -1, and sets it to -1.
func closeFD(fd *int) error {
	if *fd < 0 {
		return nil
	}
	f := *fd
	*fd = -1
	return os.NewSyscallError("close", unix.Close(f))
}

// Ring wakes the side that polls the other end of fd. fd is a Doorbell's Send end or an
// eventfd of this process. Ring does not block. It ignores a full pipe, which rings
// already, and an owner that is gone.
func Ring(fd int) {
	one := uint64(1)
	for {
		_, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
		if errno != unix.EINTR {
			return
		}
	}
}

// ClearBell makes fd silent: it polls readable only after the next ring. fd is a Doorbell's
// Recv end or an eventfd of this process. ClearBell does not block. After very many rings it
// may take several calls.
func ClearBell(fd int) {
	var buf [512]byte
	for {
		_, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf)), unsafe.Sizeof(buf))
		if errno != unix.EINTR {
			return
		}
	}
}

// FDWaiter waits in ppoll until the daemon or this process rings.
type FDWaiter struct {
	bell int // Recv end of the client's doorbell
	now  func() int64
	fds  [2]unix.PollFd

	mu   sync.Mutex // a late Ring must not write to a descriptor that is used again
	self int        // eventfd for Ring
}

// NewFDWaiter takes over bell, the Recv end of the client's doorbell. Close closes it.
// Deadlines are in nanoseconds of now, which may be nil if no Wait has a deadline. After an
// error bell still belongs to the caller.
func NewFDWaiter(bell int, now func() int64) (*FDWaiter, error) {
	self, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("waiter: %w", explain("eventfd", err))
	}
	return &FDWaiter{bell: bell, self: self, now: now}, nil
}

// Wait implements Waiter. It does not allocate.
func (w *FDWaiter) Wait(deadlineNs int64) {
	for {
		var timeout *unix.Timespec
		var ts unix.Timespec
		if deadlineNs != 0 {
			ts = unix.NsecToTimespec(max(0, deadlineNs-w.now()))
			timeout = &ts
		}
		w.fds = [2]unix.PollFd{{Fd: int32(w.bell), Events: unix.POLLIN}, {Fd: int32(w.self), Events: unix.POLLIN}}
		n, err := unix.Ppoll(w.fds[:], timeout, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			// The kernel is out of memory. Wait may return early, but must not retry the
			// failing call without a pause.
			time.Sleep(time.Millisecond)
			return
		}
		if n > 0 {
			w.clear()
		}
		return
	}
}

func (w *FDWaiter) clear() {
	if w.fds[0].Revents&unix.POLLIN != 0 {
		ClearBell(w.bell)
	} else if w.fds[0].Revents != 0 {
		// The daemon closed its end. The control socket reports that, too. Here it must
		// only not turn the wait into a busy loop.
		w.bell = -w.bell - 1
	}
	if w.fds[1].Revents != 0 {
		ClearBell(w.self)
	}
}

// Ring implements Waiter.
func (w *FDWaiter) Ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.self >= 0 {
		Ring(w.self)
	}
}

// Close implements Waiter.
func (w *FDWaiter) Close() error {
	if w.bell < 0 {
		w.bell = -w.bell - 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(closeFD(&w.bell), closeFD(&w.self))
}
