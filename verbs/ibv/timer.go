//go:build ibv && linux

package ibv

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a call that is due at a time. f runs in Progress. If its object is gone by then,
// f has to notice that.
type timer struct {
	at time.Time
	f  func()
}

// timerFD is the descriptor that wakes the owner. It is -1 if there is none.
type timerFD struct{ fd int }

func (d *Device) openTimer() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err == nil {
		d.clock.fd = fd
		err = unix.EpollCtl(d.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		return fmt.Errorf("ibv: timer: %w", err)
	}
	return nil
}

func (d *Device) closeTimer() {
	if d.clock.fd > 0 {
		unix.Close(d.clock.fd)
	}
}

// after runs f when wait has passed.
func (d *Device) after(wait time.Duration, f func()) {
	d.timers = append(d.timers, timer{time.Now().Add(wait), f})
	d.setTimer(time.Now())
}

// setTimer arms the descriptor for the next timer.
func (d *Device) setTimer(now time.Time) {
	var next time.Duration
	for i := range d.timers {
		if wait := max(d.timers[i].at.Sub(now), 1); next == 0 || wait < next {
			next = wait
		}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(next))}
	_ = unix.TimerfdSettime(d.clock.fd, 0, &spec, nil)
}

// runTimers runs the timers that are due.
func (d *Device) runTimers(now time.Time) bool {
	var b [8]byte
	_, _ = unix.Read(d.clock.fd, b[:])
	var due []func()
	d.timers = slices.DeleteFunc(d.timers, func(t timer) bool {
		if t.at.After(now) {
			return false
		}
		due = append(due, t.f)
		return true
	})
	d.setTimer(now)
	for _, f := range due {
		f()
	}
	return len(due) > 0
}
