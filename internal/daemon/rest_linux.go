package daemon

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restAfterNs: an engine that has slept for so long, and may sleep for so long
// again, rests.
const restAfterNs = int64(time.Second)

// rest is how the engine waits when there is nothing to do for seconds: as a
// goroutine that the runtime wakes. A thread in epoll_wait wakes up sooner, but
// the runtime's monitor looks after it, up to fifty times in the first
// millisecond and ten more after it; it leaves alone who is parked. Only the
// engine's thread may use it.
type rest struct {
	f     *os.File // the loop's epoll descriptor, which it owns
	raw   syscall.RawConn
	look  func(uintptr) bool
	after int64 // restAfterNs
	slept int64 // how long the last sleep was, at rest or not
}

// newRest takes ep over: Close closes it. look takes in what is ready and
// reports whether there was anything.
func newRest(ep int, look func() bool) (*rest, error) {
	if err := unix.SetNonblock(ep, true); err != nil { // makes os.NewFile try the poller
		unix.Close(ep)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	r := &rest{f: os.NewFile(uintptr(ep), "epoll"), after: restAfterNs, look: func(uintptr) bool { return look() }}
	var err error
	r.raw, err = r.f.SyscallConn()
	return r, err // none for a file
}

// wait blocks until look found something, or ns nanoseconds have passed. It
// reports false, at once, where this is no time to rest, or the runtime cannot
// poll the descriptor.
func (r *rest) wait(ns int64) bool {
	if min(r.slept, ns) < r.after {
		return false
	}
	if err := r.f.SetReadDeadline(time.Now().Add(time.Duration(ns))); err != nil {
		return false
	}
	_ = r.raw.Read(r.look) // the deadline is no error
	return true
}

func (r *rest) Close() error { return r.f.Close() }
