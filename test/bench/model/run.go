package model

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// mover is a relay of either kind.
type mover interface {
	turn() (work bool, err error)
	announce(asleep uint32)  // tells the applications whether to ring
	idle() bool              // says, after announce, that there is nothing to do
	wants() [2]unix.PollFd   // what to sleep for
	rung(fds [2]unix.PollFd) // resets the bells that rang
}

// run turns m on this thread until m fails.
func run(m mover, spin time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for last := time.Now(); ; {
		work, err := m.turn()
		if err != nil {
			return err
		}
		if work {
			last = time.Now()
			continue
		}
		if time.Since(last) < spin {
			yield()
			continue
		}
		m.announce(1)
		if m.idle() {
			fds := m.wants()
			if _, err := unix.Poll(fds[:], -1); err != nil && err != unix.EINTR {
				return err
			}
			m.rung(fds)
		}
		m.announce(0)
	}
}

// answer resets a bell that rang.
func answer(bell unix.PollFd) {
	if bell.Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(int(bell.Fd), count[:])
	}
}
