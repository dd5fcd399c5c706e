package soft

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// timerKind is a reason for which a QP waits with a time limit. Such waits are rare,
// so one list and one timerfd serve all QPs.
type timerKind uint8

const (
	timerRNR    timerKind = iota // a message waits for a receive
	timerLinger                  // the peer has closed; what it asked for is still being sent
	timerStart                   // the peer has not been heard since the set-up
	timerKinds
)

// now is the time of CLOCK_MONOTONIC, without a system call.
func now() int64 { return monotonic + int64(time.Since(started)) }

var started, monotonic = func() (time.Time, int64) {
	at := time.Now() // first: now is not behind the clock, or timers would go off early
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return at, ts.Nano()
}()

// startTimer sets or moves a timer of q, ns from now.
func (q *qp) startTimer(k timerKind, ns int64) {
	d := q.dev
	q.timers[k] = now() + max(ns, 1)
	if !q.on.timed.On() {
		d.timed.Add(&q.on.timed, q)
	}
	if d.nextTimer == 0 || q.timers[k] < d.nextTimer {
		d.setTimer(q.timers[k])
	}
}

func (q *qp) stopTimer(k timerKind) { q.timers[k] = 0 }

func (d *Device) setTimer(at int64) {
	d.nextTimer = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	// It cannot fail for a valid time.
	_ = unix.TimerfdSettime(d.timerFD, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

// expire runs the timers that are due.
func (d *Device) expire() {
	clearFD(d.timerFD)
	t := now()
	d.nextTimer = 0
	var next int64
	for at := d.timed.Head; at != nil; {
		q, waits := at.Of, false
		for k := range q.timers {
			if at := q.timers[k]; at != 0 && at <= t {
				q.timers[k] = 0
				q.timeout(timerKind(k))
			}
			if at := q.timers[k]; at != 0 {
				waits = true
				if next == 0 || at < next {
					next = at
				}
			}
		}
		behind := at.Next // as it is now: a timer that went off may have started others
		if !waits {
			d.timed.Del(at)
		}
		at = behind
	}
	if d.trimAt != 0 && d.trimAt <= t {
		d.trim()
		d.trimAt = 0
		if !d.trimmed() {
			d.trimAt = t + trimNs
		}
	}
	if d.trimAt != 0 && (next == 0 || d.trimAt < next) {
		next = d.trimAt
	}
	if next != 0 {
		d.setTimer(next)
	}
}

func (q *qp) timeout(k timerKind) {
	if !q.state.connected() {
		return
	}
	switch k {
	case timerRNR:
		q.dev.stats.RNRExceeded++
		q.refuse(iwarp.TermNoBuffer, q.park.quote())
	case timerLinger:
		q.lost(nil)
	case timerStart:
		q.nudge()
	}
}
