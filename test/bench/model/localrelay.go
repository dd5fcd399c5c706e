package model

import (
	"time"

	"golang.org/x/sys/unix"
)

// localBatch is how many frames one turn moves each way.
const localBatch = 256

// LocalRelay has the place of the one daemon of two applications: it copies each frame once,
// from ring to ring.
type LocalRelay struct {
	in   [2]*consumer
	out  [2]*producer
	bell [2]int
	full [2]bool // out has no room for the next frame of the other in
}

// NewLocalRelay returns the relay between a and b.
func NewLocalRelay(a, b *Host) *LocalRelay {
	l := &LocalRelay{bell: [2]int{a.relayBell, b.relayBell}}
	l.in[0], l.out[0] = a.relayEnds()
	l.in[1], l.out[1] = b.relayEnds()
	return l
}

// Run moves frames and does not return. When it has nothing to do, it yields for spin, then
// it sleeps.
func (l *LocalRelay) Run(spin time.Duration) error { return run(l, spin) }

func (l *LocalRelay) turn() (work bool, err error) {
	for i, in := range l.in {
		out, n := l.out[1-i], 0
		l.full[1-i] = false
		for ; n < localBatch; n++ {
			h, payload := in.peek()
			if payload == nil {
				break
			}
			dst := out.reserve(h)
			if dst == nil {
				l.full[1-i] = true
				break
			}
			copy(dst, payload)
			in.drop(h)
		}
		if n > 0 {
			in.release()
			out.publish()
			work = true
		}
	}
	return work, nil
}

func (l *LocalRelay) announce(asleep uint32) {
	for i := range l.in {
		l.in[i].hungry.Store(asleep)
		if l.full[i] {
			l.out[i].blocked.Store(asleep)
		}
	}
}

func (l *LocalRelay) idle() bool {
	for i, in := range l.in {
		switch {
		case l.full[1-i] && !l.out[1-i].stuck():
			return false
		case !l.full[1-i] && !in.empty():
			return false
		}
	}
	return true
}

func (l *LocalRelay) wants() [2]unix.PollFd {
	return [2]unix.PollFd{{Fd: int32(l.bell[0]), Events: unix.POLLIN}, {Fd: int32(l.bell[1]), Events: unix.POLLIN}}
}

func (l *LocalRelay) rung(fds [2]unix.PollFd) {
	for _, f := range fds {
		answer(f)
	}
}
