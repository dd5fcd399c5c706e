package daemon

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// restAfterNs is how long an engine must have slept, and be allowed to sleep again, to
// rest.
const restAfterNs = int64(time.Second)

// rest is how the engine waits when there is nothing to do for seconds: as a
// goroutine that the runtime wakes. A thread in epoll_wait wakes up sooner, but
// the runtime's monitor looks after it, up to fifty times in the first
// millisecond and ten more after it. The monitor leaves parked goroutines alone.
// Only the engine's thread may use a rest.
type rest struct {
	ep    int // the loop's
	look  func(uintptr) bool
	after int64 // restAfterNs
	slept int64 // how long the last sleep was, at rest or not
}

// newRest is for ep, of which look takes in what is ready and reports whether
// there was anything.
func newRest(ep int, look func() bool) *rest {
	return &rest{ep: ep, after: restAfterNs, look: func(uintptr) bool { return look() }}
}

// wait blocks until look found something, or ns nanoseconds have passed. It
// reports false, at once, where this is no time to rest, or the runtime cannot
// poll ep.
func (r *rest) wait(ns int64) bool {
	if min(r.slept, ns) < r.after {
		return false
	}
	// The runtime's poller has ep only while the engine rests: each ring that comes
	// when the engine is busy would wake the poller, too.
	fd, err := unix.FcntlInt(uintptr(r.ep), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile try the poller
		unix.Close(fd)
		return false
	}
	f := os.NewFile(uintptr(fd), "epoll")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(time.Now().Add(time.Duration(ns))) != nil {
		return false
	}
	_ = raw.Read(r.look) // the deadline is no error
	return true
}
