package rds

import (
	"net/netip"
	"time"

	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/shm"
)

// inRun is the run of which a socket has not yet received all datagrams. Guarded by rx.mu.
type inRun struct {
	rest []byte // frames of those, nil: there is no run
	ev   shm.Event
	from netip.AddrPort // source and time of ev
	at   time.Time
	told int // when no more than this is left of rest, another quarter is given back
}

// stepRun is how long a run must be for parts of it to be given back.
const stepRun = 2 << 10

// unread reports whether a message waits that has been taken from the event ring.
func (s *Socket) unread() bool { return s.rxq.len() > 0 || s.in.rest != nil }

// begin makes e's run the one that is received from. mu is held.
func (r *rx) begin(s *Socket, e *shm.Event) error {
	p, err := r.payload(e, "run")
	if err != nil {
		return err
	}
	in := &s.in
	in.rest, in.ev = p, *e
	in.from, in.at = source(e), time.Unix(0, e.RecvTime)
	if in.told = int(e.Len) - in.quarter(); e.Len < stepRun || e.RxID >= keptRx {
		in.told = 0
	}
	return nil
}

// quarter is after how many bytes a part of the run is given back.
func (in *inRun) quarter() int { return (int(in.ev.Len) + shm.RunSteps - 1) / shm.RunSteps }

// first returns the payload of the next datagram of the run, and what follows it.
func (s *Socket) first() (p, rest []byte, err error) {
	in := &s.in
	p, rest, ok := frames.Next(in.rest)
	if !ok {
		return nil, nil, s.c.broken("run %d ends within a frame, with %d bytes left", in.ev.RxID, len(in.rest))
	}
	return p, rest, nil
}

// pass notes that rest is what is left of the run of s, and gives back what was received
// of it. mu is held.
func (r *rx) pass(s *Socket, rest []byte) {
	in := &s.in
	in.rest = rest
	if len(rest) == 0 {
		in.rest = nil
		r.giveBack(in.ev.RxID)
		return
	}
	for ; len(rest) <= in.told; in.told -= in.quarter() {
		r.giveBack(in.ev.RxID | shm.RxStep)
	}
}

// takeMore takes datagrams of the run of s that is being received into ms, and returns how
// many. mu is held.
func (r *rx) takeMore(s *Socket, ms []Received) (n int, err error) {
	in := &s.in
	for ; n < len(ms) && in.rest != nil; n++ {
		f, rest, err := s.first()
		if err != nil {
			return n, err
		}
		in.copyTo(&ms[n], f)
		r.pass(s, rest)
	}
	return n, nil
}

// copyTo sets m to the datagram with the payload f.
func (in *inRun) copyTo(m *Received, f []byte) {
	m.N, m.Len = copy(m.Payload, f), len(f)
	m.Addr, m.SrcInc, m.Cookie, m.Time, m.Traceparent = in.from, in.ev.SrcInc, 0, in.at, ""
}

// recvAgain takes the next datagram of the run that is being received, and reports whether it has.
// It does so where the datagram only has to be copied. As others are left behind it, and its caller
// has woken for none of them, nobody has to be woken in its place. It leaves everything else to recv,
// for which it keeps rx.mu locked.
func (s *Socket) recvAgain(m *Received) bool {
	r, in := &s.c.rx, &s.in
	r.mu.Lock()
	f, rest, whole := frames.Next(in.rest)
	if whole && len(rest) > in.told && !s.closed.Load() && !s.rdl.expired.Load() {
		in.copyTo(m, f)
		in.rest = rest
		r.mu.Unlock()
		return true
	}
	return false
}

// takeNext takes the next message of s if there is one: its event into e, and as much of
// its payload as fits into p, and its traceparent, unless parent is nil. mu is held; for a
// large payload it is released inside.
func (s *Socket) takeNext(p []byte, e *shm.Event, parent *string) (n int, ok bool, err error) {
	r := &s.c.rx
	if s.in.rest == nil {
		switch {
		case !r.next(s, e):
			return 0, false, nil
		case e.Flags&shm.EventRun == 0:
			epoch := r.epoch
			if err := r.traceparent(e, parent); err != nil {
				return 0, false, err
			}
			if n, err = s.take(p, e); err != nil {
				return 0, false, err
			}
			if r.epoch == epoch { // else it was another daemon's
				r.giveBack(e.RxID)
			}
			return n, true, nil
		}
		if err := r.begin(s, e); err != nil {
			return 0, false, err
		}
	}
	f, rest, err := s.first()
	if err != nil {
		return 0, false, err
	}
	*e = s.in.ev
	e.Len = uint32(len(f))
	n = copy(p, f)
	_ = r.traceparent(e, parent) // of a run it only clears parent
	r.pass(s, rest)
	return n, true, nil
}
