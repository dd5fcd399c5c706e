package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/rdsd/rdsd/internal/krds"
	"github.com/rdsd/rdsd/rds"
)

// ErrMore is what a Flow's Send returns if it has more to send at once. The loop first takes
// what has arrived.
var ErrMore = errors.New("more to send")

// Flow is what a Loop sends to one destination.
type Flow struct {
	To netip.AddrPort
	// Send sends what may be sent now. It does not wait: of the errors of a send, the loop
	// handles those of a send that would have blocked.
	Send func() error

	congested bool
}

// Loop is the loop of one socket: it takes what has arrived and what has settled, lets each
// flow send, and waits. It belongs to one goroutine, and to nobody else while that runs.
type Loop struct {
	Sock  *rds.Socket
	Flows []Flow
	In    []rds.Received   // what is received into: at most so many messages at a time
	Comps []rds.Completion // the same for completions; nil if there are no operations

	Take    func(m *rds.Received, now time.Time) error
	Settled func(c *rds.Completion, now time.Time) error
	Notice  func(n *rds.Notice) error

	// Due is when a flow has to send next. The zero time says that no flow waits for its
	// time. It may be nil.
	Due func() time.Time
	// Idle reports whether nothing is awaited any more. The loop ends then, if it is
	// stopping. Without Idle it goes on until its context ends.
	Idle func() bool

	CongMonitor bool   // learn of relief by the congestion monitor
	Stopping    bool   // nothing is sent any more
	Congestions uint64 // how often a destination was found congested

	space  bool // a send found the buffer full
	relief []netip.AddrPort
}

// Run sends until work ends. Then it takes what still arrives, until Idle or until ctx ends,
// of which work is a part.
func (l *Loop) Run(ctx, work context.Context) error {
	for ctx.Err() == nil {
		if work.Err() != nil {
			l.Stopping = true
		}
		more, err := l.turn()
		switch {
		case err != nil:
			return err
		case l.Stopping && l.Idle != nil && l.Idle():
			return nil
		case more:
			continue
		}
		if l.Stopping {
			work = ctx
		}
		if err := l.wait(work); err != nil && work.Err() == nil {
			return err
		}
		if err := l.notices(); err != nil {
			return err
		}
	}
	return nil
}

// turn takes what has come and sends what may be sent. more says that there is more to do at
// once.
func (l *Loop) turn() (more bool, err error) {
	if more, err = l.receive(); err != nil {
		return false, err
	}
	if err := l.settle(); err != nil {
		return false, err
	}
	l.relieve()
	if l.Stopping {
		return more, nil
	}
	l.space = false
	for i := range l.Flows {
		f := &l.Flows[i]
		if f.congested {
			continue
		}
		switch err := f.Send(); {
		case err == nil:
		case err == ErrMore:
			more = true
		case errors.Is(err, rds.ErrCongested):
			// Only this destination is congested. The others go on.
			f.congested = true
			l.Congestions++
		case errors.Is(err, rds.ErrCompletionsFull):
			return more, nil // a completion comes first
		case errors.Is(err, rds.ErrWouldBlock):
			l.space = true
			return more, nil // no use to try the others
		default:
			return false, fmt.Errorf("to %v: %w", f.To, err)
		}
	}
	return more, nil
}

// receive takes the messages that have arrived. more says that there may be others.
func (l *Loop) receive() (more bool, err error) {
	n, err := l.Sock.RecvBatch(rds.DontWait, l.In)
	if n > 0 {
		now := time.Now()
		for i := range n {
			if err := l.Take(&l.In[i], now); err != nil {
				return false, err
			}
		}
	}
	if errors.Is(err, rds.ErrWouldBlock) {
		err = nil
	}
	return n == len(l.In), err
}

func (l *Loop) settle() error {
	for l.Comps != nil {
		n := l.Sock.Completions(l.Comps)
		now := time.Now()
		for i := range n {
			if err := l.Settled(&l.Comps[i], now); err != nil {
				return err
			}
		}
		if n < len(l.Comps) {
			break
		}
	}
	return nil
}

func (l *Loop) notices() error {
	var ns [8]rds.Notice
	for {
		n := l.Sock.Notices(ns[:])
		for i := range n {
			if err := l.Notice(&ns[i]); err != nil {
				return err
			}
		}
		if n < len(ns) {
			return nil
		}
	}
}

// relieve clears congestion that is over.
func (l *Loop) relieve() {
	all := ^uint64(0) // the wait ended because of a relief, or the next send says that there is none
	if l.CongMonitor {
		all = krds.Of(l.Sock).CongUpdates()
	}
	for i := range l.Flows {
		if f := &l.Flows[i]; f.congested && all&(1<<(f.To.Port()%64)) != 0 {
			f.congested = false
		}
	}
}

// wait waits until there is something to do.
func (l *Loop) wait(ctx context.Context) error {
	set := rds.WaitSet{Message: true, Completion: l.Comps != nil, Notice: true}
	if l.Stopping {
		_, err := l.Sock.Wait(ctx, set)
		return err
	}
	set.SendSpace, *krds.Congestion(&set) = l.space, l.CongMonitor
	if !l.CongMonitor {
		set.Relief = l.congested()
	}
	var due time.Time
	if l.Due != nil && !l.space && len(set.Relief) == 0 {
		due = l.Due()
	}
	if due.IsZero() {
		_, err := l.Sock.Wait(ctx, set)
		return err
	}
	early := due.Add(-sleepFuzz)
	if !early.After(time.Now()) {
		runtime.Gosched()
		return nil
	}
	until, cancel := context.WithDeadline(ctx, early)
	defer cancel()
	_, err := l.Sock.Wait(until, set)
	if until.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

func (l *Loop) congested() []netip.AddrPort {
	l.relief = l.relief[:0]
	for i := range l.Flows {
		if l.Flows[i].congested {
			l.relief = append(l.relief, l.Flows[i].To)
		}
	}
	return l.relief
}
