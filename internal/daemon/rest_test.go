package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"golang.org/x/sys/unix"
)

// TestRest: a rest ends with what is ready before it or during it, and with its
// time; what was ready and is not any more does not end it.
func TestRest(t *testing.T) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(bell)
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(bell)}); err != nil {
		t.Fatal(err)
	}
	var evs [4]unix.EpollEvent
	looks := make(chan int, 100)
	r := newRest(ep, func() bool {
		n := epollWait(ep, evs[:], 0)
		if n > 0 {
			shm.ClearBell(bell)
		}
		looks <- n
		return n > 0
	})
	if r.wait(int64(time.Hour)) {
		t.Fatal("rests after no sleep at all")
	}
	r.after = 0
	rest := func(d time.Duration) chan bool {
		done := make(chan bool, 1)
		go func() { done <- r.wait(int64(d)) }()
		return done
	}
	ended := func(what string, done chan bool) {
		t.Helper()
		select {
		case ok := <-done:
			if !ok {
				t.Fatalf("%s: the runtime cannot poll an epoll descriptor", what)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the rest does not end", what)
		}
	}

	for range 3 { // each wants an edge of its own
		shm.Ring(bell)
		ended("rung before", rest(time.Hour))
		if n := <-looks; n != 1 {
			t.Fatalf("%d ready at the first look", n)
		}

		done := rest(time.Hour)
		if n := <-looks; n != 0 {
			t.Fatalf("%d ready before the ring", n)
		}
		select {
		case <-done:
			t.Fatal("nobody rang")
		default:
		}
		shm.Ring(bell)
		ended("rung during it", done)
		for n := 0; n == 0; n = <-looks {
		}

		start := time.Now()
		ended("nobody rings", rest(20*time.Millisecond))
		// The monotonic clock judges: load makes a rest longer and never shorter.
		if el := time.Since(start); el < 20*time.Millisecond {
			t.Errorf("a rest of 20 ms ended after %v", el)
		}
		for len(looks) > 0 {
			if n := <-looks; n != 0 {
				t.Errorf("%d ready, and nobody rang", n)
			}
		}
	}
}

// TestLoopRests: an engine that rests hears Do, and the end.
func TestLoopRests(t *testing.T) {
	d := startDaemonOf(t, nil, (*ipc.Conn).Peer)
	looks := make(chan struct{}, 1)
	do := func(f func()) {
		t.Helper()
		done := make(chan struct{})
		d.engine.Do(func() { f(); close(done) })
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("an engine that rests does not hear Do")
		}
	}
	for range 3 {
		do(func() {
			d.loop.rest.after = 0 // from its next sleep on
			d.loop.rest.look = func(uintptr) bool {
				select {
				case looks <- struct{}{}:
				default:
				}
				return d.loop.collect(0) > 0
			}
		})
		select {
		case <-looks: // it rests, or begins to
		case <-time.After(patience):
			t.Fatal("it does not rest")
		}
		do(func() {})
	}
}

// TestClockIsSet: after the wall clock was set, by an hour either way, the engine's
// heartbeat is not late, and it is not in the future.
func TestClockIsSet(t *testing.T) {
	d := startDaemonOf(t, nil, (*ipc.Conn).Peer)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		seen := make(chan struct{})
		d.engine.Do(func() { d.loop.wall0 -= engine.Wall(by); close(seen) })
		<-seen
		eventually(t, fmt.Sprintf("set by %v: the heartbeat follows", by), func() error {
			d.engine.Do(func() {}) // it turns, and then rests again
			snap, now := d.statistics.Snapshot(), time.Now()
			if beat := time.Unix(0, snap.Beat); now.Sub(beat).Abs() > time.Minute {
				return fmt.Errorf("at %v, now it is %v", beat, now)
			}
			return nil
		})
	}
}
