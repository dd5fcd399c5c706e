package rds

import "github.com/rdsd/rdsd/internal/shm"

// all returns the sockets, those being closed and those that have ended included. mu is
// held.
func (r *rx) all() (socks []*Socket) {
	for _, s := range r.socks {
		if s != nil {
			socks = append(socks, s)
		}
	}
	for s := range r.apart {
		socks = append(socks, s)
	}
	return socks
}

// open returns the sockets that the daemon has and that are not being closed.
func (r *rx) open() (socks []*Socket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.socks {
		if s != nil && !s.closed.Load() && s.ended() == nil {
			socks = append(socks, s)
		}
	}
	return socks
}

// pop takes the first event out of the queue of s. mu is held.
func (r *rx) pop(s *Socket) shm.Event {
	e := s.rxq.pop()
	if e.RxID < keptRx {
		r.waiting--
	}
	return e
}

// payload returns the n bytes of the message or run e. mu is held, or the memory is in use.
func (r *rx) payload(e *shm.Event, what string) ([]byte, error) {
	if r.arena.Valid(e.Chunk, int(e.Len)) && e.RxID < r.maxRx {
		return r.arena.Bytes(e.Chunk, int(e.Len)), nil
	}
	if e.RxID >= keptRx {
		return r.kept[e.RxID][:e.Len], nil
	}
	return nil, r.c.broken("%s %d of %d bytes at chunk %d is outside the receive arena", what, e.RxID, e.Len, e.Chunk)
}

// odd reports whether the daemon has given e a number that only the client gives, and
// ends the client then.
func (r *rx) odd(e *shm.Event) bool {
	if e.RxID < keptRx {
		return false
	}
	what := "message"
	if e.Flags&shm.EventRun != 0 {
		what = "run"
	}
	_ = r.c.broken("%s %d of %d bytes at chunk %d is outside the receive arena", what, e.RxID, e.Len, e.Chunk)
	return true
}

// keepAll copies what sockets have not received out of the receive arena, which is about
// to be unmapped. rx.mu is held.
func (r *rx) keepAll() {
	for _, s := range r.all() {
		if in := &s.in; in.rest != nil && in.ev.RxID < keptRx {
			in.rest = append([]byte(nil), in.rest...)
			in.ev.RxID, in.told = r.keep(nil), 0
		}
		for i := range s.rxq.len() {
			e := s.rxq.at(i)
			if e.RxID >= keptRx {
				continue
			}
			p, err := r.toKeep(e)
			if err != nil {
				return
			}
			e.RxID = r.keep(append([]byte(nil), p...))
		}
		if s.closed.Load() {
			r.drop(s)
		}
	}
}

// keptRx is the first number of messages that were received before the daemon went
// away. Receive ids are less.
const keptRx = 2 * shm.MaxRingEntries

// keep keeps the payload p of a message, and returns a number for it in place of its
// receive id.
func (r *rx) keep(p []byte) uint32 {
	if r.kept == nil {
		r.kept = map[uint32][]byte{}
	}
	for {
		r.lastKept = max(keptRx, (r.lastKept+1)&^shm.RxStep)
		if _, used := r.kept[r.lastKept]; !used {
			r.kept[r.lastKept] = p
			return r.lastKept
		}
	}
}
