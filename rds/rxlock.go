package rds

import "sync"

// rxLock is the lock of an rx. Whoever takes events out of the ring may give back receive ids, also one who only
// looks: those of messages to sockets that are closed. So there is one way to release it, which publishes them.
type rxLock struct {
	m        sync.Mutex
	r        *rx
	returned bool // receive ids put and not published
}

func (l *rxLock) Lock() { l.m.Lock() }

// Unlock publishes the ids that giveBack collected, releases the lock, and rings the daemon if it sleeps: a
// sender may be waiting for room at the receiver.
func (l *rxLock) Unlock() {
	if l.returned {
		l.publish()
		return
	}
	l.m.Unlock()
}

func (l *rxLock) publish() {
	r, ring := l.r, false
	if l.returned = false; !r.dead {
		r.ret.Publish()
		if err := r.ret.Err(); err != nil {
			_ = r.c.broken("receive-return ring: %v", err)
		}
		ring = r.c.wakeNeeded()
	}
	l.m.Unlock()
	if ring {
		r.c.ringDaemon()
	}
}
