package daemon

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/guard"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/wait"
	"golang.org/x/sys/unix"
)

// loop drives an Engine on a locked thread: it turns while there is work, spins
// with sched_yield or a pause for a while if that is worth it (package wait), and then sleeps in
// epoll_wait.
type loop struct {
	engine *engine.Engine
	stats  *stats.Block // the engine's
	ep     int          // epoll: device, own doorbell, client doorbells
	rest   *rest
	bell   int                      // eventfd that Engine.Do rings
	bells  map[int32]*engine.Client // by our end of their doorbell
	asleep atomic.Bool              // Engine.Do has to ring
	evs    [64]unix.EpollEvent
	stop   bool
	pause  *pause        // nil: none
	long   suspicion     // a turn was long, or has touched memory that is gone
	hits   uint64        // guard.Hits, and Slow of Engine.Threads
	done   chan struct{} // closed when run has returned

	turn      uint
	waits     wait.Waiter
	cpus      []config.CPURange // of the thread; empty: all
	published int64             // when statistics were published last
	worked    bool              // there was work since then

	clock func() int64 // the engine's time, set by run
	wall0 engine.Wall  // the wall clock at the engine's time 0, see followWall
}

const (
	stallNs    = 10_000_000             // a turn that takes longer counts as a stall
	longNs     = 1_000_000              // after a turn that takes longer the daemon looks for holes in memory
	maxSleepNs = int64(stats.SleepMost) // the heartbeat's pace when idle
	beatNs     = 100_000_000            // and at least, when awake without work
	publishNs  = 10_000_000             // statistics are copied this often when busy
	quietNs    = 1_000_000_000          // the longest that a daemon that shuts down waits for what its connections have in progress
	lookEvery  = 8                      // turns between two looks for doorbells when awake

	deviceRestNs = 20_000 // for Engine.DrivenBy
)

// newLoop makes what drives e. The engine's thread does not run yet.
func newLoop(e *engine.Engine, block *stats.Block, c *config.Config) (*loop, error) {
	l := &loop{engine: e, stats: block, done: make(chan struct{}), long: make(suspicion, 1), ep: -1, bell: -1, bells: map[int32]*engine.Client{}}
	l.waits = wait.New(c.Wait, int64(c.Spin), wait.Yield)
	l.reportWay()
	l.cpus = c.CPUs
	err := mayBind(l.cpus)
	if err != nil {
		return nil, err
	}
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
		if l.asleep.Load() {
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

// watchBell adds the doorbell that c rings when it is parked. Only the engine's thread calls it.
func (l *loop) watchBell(fd int, c *engine.Client) error {
	err := l.watch(fd)
	if err == nil {
		l.bells[int32(fd)] = c
	}
	return err
}

// unwatchBell ends what watchBell began. The descriptor must still be open. Only the
// engine's thread calls it.
func (l *loop) unwatchBell(fd int) {
	_ = unix.EpollCtl(l.ep, unix.EPOLL_CTL_DEL, fd, nil)
	delete(l.bells, int32(fd))
}

// collect waits up to ms milliseconds for doorbells and unparks the clients that rang. It
// returns how many descriptors were ready. Only the engine's thread calls it.
func (l *loop) collect(ms int) int {
	n := epollWait(l.ep, l.evs[:], ms)
	for i := range n {
		fd := l.evs[i].Fd
		if c := l.bells[fd]; c != nil {
			shm.ClearBell(int(fd))
			l.engine.Unpark(c)
		} else if int(fd) == l.bell {
			shm.ClearBell(l.bell)
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

// run is the engine's thread. It returns when ctx has ended.
func (l *loop) run(ctx context.Context) {
	defer close(l.done)
	runtime.LockOSThread() // for good: the thread, which may be bound to CPUs, ends with the goroutine
	_ = bindThread(l.cpus) // newLoop has tried it
	e := l.engine
	end := context.AfterFunc(ctx, func() { e.Do(func() { l.stop = true }) })
	defer end()
	start := time.Now()
	// Virtual zero is no time at all to a timer: start at 1.
	clock := func() int64 { return int64(time.Since(start)) + 1 }
	l.clock = clock
	l.followWall()
	e.KeepTime(clock)
	l.stats.SetState(stats.Running)
	defer l.stats.SetState(stats.Stopped)
	e.Resume() // if it has adopted another one's state
	now := clock()
	for !l.stop {
		work := e.Turn(now, l.wall0+engine.Wall(now))
		t := clock()
		l.turned(t - now)
		l.worked = l.worked || work
		if age := t - l.published; age > publishNs && l.worked || age > beatNs {
			l.publish(t)
			t = clock()
		}
		if l.turn++; l.turn%lookEvery == 0 && e.Parked() {
			l.collect(0)
		}
		if l.pause != nil && l.pauses() {
			now = clock()
			continue
		}
		if work {
			l.waits.Over(now)
			now = t
			continue
		}
		l.stats.C[stats.EngineIdleTurns]++
		next := l.waits.Next(t)
		switch {
		case next == wait.Spin:
			wait.Pause()
		case next == wait.Yield || e.Active():
			wait.GiveWay()
			now = clock()
			l.waits.Back(now)
			continue
		case e.MayBlock():
			now = l.sleep(t, clock)
			continue
		}
		now = clock()
	}
	if e.Halted() { // another daemon goes on with it
		return
	}
	// What the connections that Shutdown broke off still have in progress ends.
	e.Hurry()
	for end := clock() + quietNs; !e.Quiet() && now < end; {
		now = clock()
		if !e.Turn(now, l.wall0+engine.Wall(now)) {
			wait.GiveWay() // to what writes the last acks
		}
	}
	e.PublishStats(engine.Wall(time.Now().UnixNano()))
}

// turned counts a turn of ns. Memory with holes is looked for behind one that was long, or touched what is gone, and
// when an I/O thread is slow. Only the engine's thread calls it.
func (l *loop) turned(ns int64) {
	l.stats.Turn(ns)
	l.stats.C[stats.EngineTurns]++
	if ns > stallNs {
		l.stats.C[stats.EngineStalls]++
	}
	if hits := guard.Hits() + l.engine.Threads().Slow; ns > longNs || hits != l.hits {
		l.hits = hits
		l.long.note()
	}
}

// publish copies statistics and lists to the files that rdsctl reads. Only the engine's thread calls it.
func (l *loop) publish(now int64) {
	l.published, l.worked = now, false
	l.followWall()
	l.reportWay()
	t := l.engine.Threads()
	l.stats.C[stats.IOThreadCalls], l.stats.C[stats.IOThreadSlow] = t.Calls, t.Slow
	l.engine.PublishStats(l.wall0 + engine.Wall(now))
	l.engine.PublishLists(l.wall0 + engine.Wall(now))
}

// reportWay counts how the engine waits.
func (l *loop) reportWay() {
	r, c := l.waits.Report(), &l.stats.C
	c[stats.EngineStrategy], c[stats.EngineWay], c[stats.EngineSlowYields] = uint64(r.Strategy), uint64(r.Way), r.Slow
	c[stats.EngineLookNs], c[stats.EngineBlockNs] = uint64(r.Look), uint64(r.Block)
}

// followWall notices that the wall clock was set, or that the machine slept: the engine's
// time knows neither. Without it every heartbeat from then on would seem late, and a
// supervisor would end the daemon.
//
// The two clocks run at the same rate. wall0 is kept as long as it can be right: the wall clock was read
// after first and before last. Else it is the latest that it can be, so that no message has a time before
// it was sent. As the thread seldom loses the processor here, that is late by less than 1 µs soon.
func (l *loop) followWall() {
	first := l.clock()
	wall := engine.Wall(time.Now().UnixNano())
	last := l.clock()
	if d := wall - l.wall0; d < engine.Wall(first) || d > engine.Wall(last) {
		l.wall0 = wall - engine.Wall(first)
	}
}

// sleep announces sleep to everybody who could have work for the engine, looks once more,
// and blocks until a doorbell rings or a timer is due. It returns the time after it.
// Only the engine's thread calls it.
func (l *loop) sleep(now int64, clock func() int64) int64 {
	e := l.engine
	l.asleep.Store(true)
	if e.Park() {
		timeout := maxSleepNs
		if t := e.NextTimer(); t != 0 {
			timeout = max(min(timeout, t-now), 0)
		}
		l.stats.C[stats.EngineSleeps]++
		if now-l.published > publishNs/10 {
			l.publish(now)
		} else if l.worked {
			timeout = min(timeout, publishNs) // it is due then
		}
		l.stats.SetState(stats.Sleeping)
		if !l.rest.wait(timeout) {
			l.collect(int((timeout + 999_999) / 1_000_000))
		}
		e.Slept()
		from := now
		now = clock()
		l.rest.slept = now - from
		l.stats.Woke(int64(l.wall0) + now)
	}
	l.asleep.Store(false)
	return now
}
