package daemon

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// loop drives an Engine on a locked thread: it turns while there is work, spins
// with sched_yield for a while, and then sleeps in epoll_wait.
type loop struct {
	e     *engine.Engine
	st    *stats.Block // e's
	ep    int          // epoll: device, own doorbell, client doorbells
	rest  *rest
	bell  int                      // eventfd that Do rings
	bells map[int32]*engine.Client // by our end of their doorbell
	spin  int64
	idle  atomic.Bool // asleep: Do has to ring
	evs   [64]unix.EpollEvent
	stop  bool

	turn   uint
	guard  shm.SpinGuard
	beatAt int64 // when statistics were published last
	unsaid bool  // there was work since then
}

const (
	stallNs    = 10_000_000
	maxSleepNs = int64(stats.SleepMost) // the heartbeat's pace when idle
	beatNs     = 100_000_000            // and at least, when awake without work
	publishNs  = 10_000_000             // statistics are copied this often when busy
	lookEvery  = 8                      // turns between two looks for doorbells when awake

	deviceRestNs = 20_000
)

func newLoop(e *engine.Engine, st *stats.Block, spin time.Duration) (*loop, error) {
	l := &loop{e: e, st: st, spin: int64(spin), ep: -1, bell: -1, bells: map[int32]*engine.Client{}}
	var err error
	if err = failpoint.Hit(failpoint.Epoll); err != nil {
		return nil, err
	}
	if l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	l.rest = newRest(l.ep, func() bool { return l.collect(0) > 0 })
	if err = failpoint.Hit(failpoint.Eventfd); err != nil {
		l.close()
		return nil, err
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	err = l.watch(l.bell)
	for _, fd := range e.FDs() {
		if err == nil {
			err = l.watch(fd)
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	e.DrivenBy(func() {
		if l.idle.Load() {
			shm.Ring(l.bell)
		}
	}, deviceRestNs)
	return l, nil
}

// watch adds a descriptor whose readiness ends the engine's sleep.
func (l *loop) watch(fd int) error {
	if err := failpoint.Hit(failpoint.Watch); err != nil {
		return err
	}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll add: %w", err)
	}
	return nil
}

// watchBell adds the doorbell that c rings when it is parked.
func (l *loop) watchBell(fd int, c *engine.Client) error {
	err := l.watch(fd)
	if err == nil {
		l.bells[int32(fd)] = c
	}
	return err
}

func (l *loop) unwatchBell(fd int) {
	_ = unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, fd, nil)
	delete(l.bells, int32(fd))
}

// collect waits up to ms milliseconds for doorbells and makes those who rang
// active. It returns how many rang.
func (l *loop) collect(ms int) int {
	n := epollWait(l.ep, l.evs[:], ms)
	for i := 0; i < n; i++ {
		fd := l.evs[i].Fd
		if c := l.bells[fd]; c != nil {
			shm.Drain(int(fd))
			l.e.Unpark(c)
		} else if int(fd) == l.bell {
			shm.Drain(l.bell)
		}
	}
	return n
}

func (l *loop) close() {
	for _, fd := range []int{l.ep, l.bell} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// run is the engine's thread. It returns when stop was posted.
func (l *loop) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := l.e
	end := context.AfterFunc(ctx, func() { e.Do(func() { l.stop = true }) })
	defer end()
	start := time.Now()
	wall0 := start.UnixNano()
	// Virtual zero is no time at all to a timer: start at 1.
	clock := func() int64 { return int64(time.Since(start)) + 1 }
	l.st.SetState(stats.Running)
	defer l.st.SetState(stats.Stopped)
	now := clock()
	last := now // of the last turn that found work
	for !l.stop {
		work := e.Turn(now, wall0+now)
		t := clock()
		l.st.Turn(t - now)
		if t-now > stallNs {
			l.st.C[stats.EngineStalls]++
		}
		l.st.C[stats.EngineTurns]++
		l.unsaid = l.unsaid || work
		if age := t - l.beatAt; age > publishNs && l.unsaid || age > beatNs {
			l.publish(t, wall0)
		}
		if l.turn++; l.turn%lookEvery == 0 && e.Parked() {
			l.collect(0)
		}
		now = t
		if work {
			last = now
			continue
		}
		l.st.C[stats.EngineIdleTurns]++
		if now-last < l.spin && l.guard.May(now) || e.Active() {
			yield()
			t := clock()
			l.guard.Yielded(now, t)
			now = t
			continue
		}
		if !e.MayBlock() {
			now = clock()
			continue
		}
		now = l.sleep(now, wall0, clock)
		last = now
	}
	// The connections that shutdown broke off drain.
	e.Hurry()
	for i := 0; i < 1000 && !e.Quiet(); i++ {
		now = clock()
		e.Turn(now, wall0+now)
	}
	e.PublishStats(time.Now().UnixNano())
}

func (l *loop) publish(now, wall0 int64) {
	l.beatAt, l.unsaid = now, false
	l.e.PublishStats(wall0 + now)
	l.e.PublishLists(wall0 + now)
}

// sleep announces sleep to everybody who could have work for the engine, looks
// once more, and blocks until somebody rings or a timer is due.
func (l *loop) sleep(now, wall0 int64, clock func() int64) int64 {
	e := l.e
	l.idle.Store(true)
	if e.Park() {
		timeout := maxSleepNs
		if t := e.NextTimer(); t != 0 {
			timeout = max(min(timeout, t-now), 0)
		}
		l.st.C[stats.EngineSleeps]++
		if now-l.beatAt > publishNs/10 {
			l.publish(now, wall0)
		} else if l.unsaid {
			timeout = min(timeout, publishNs) // it is due then
		}
		l.st.SetState(stats.Sleeping)
		if !l.rest.wait(timeout) {
			l.collect(int((timeout + 999_999) / 1_000_000))
		}
		e.Slept()
		from := now
		now = clock()
		l.rest.slept = now - from
		l.st.Woke(wall0 + now)
	}
	l.idle.Store(false)
	return now
}
