package tcp

import (
	"errors"
	"slices"
)

// pipe is a TCP connection between two ends' kernels: half 0 is written by the
// side that connected. It is established before either owner learns of it, and
// each side's kernel takes, and acks, what the other writes from then on.
type pipe struct {
	w     *tcpWorld
	halfs [2]half
	ends  [2]*pipeEnd
}

// half is one direction.
type half struct {
	flight  []byte // written, not acked
	arrived []byte // acked, not read
	fin     bool   // the writer has ended it
	finDone bool   // the end has arrived
}

// pipeEnd is one side's Stream.
type pipeEnd struct {
	p      *pipe
	side   int
	owner  *tcpEnd
	port   uint16
	dial   tcpDial // of the side that connected
	lane   int
	handed bool // the owner was told of it
	closed bool
	reset  bool // the connection broke
	done   bool // HandleClosed was called
	full   bool
}

func (s *pipeEnd) out() *half      { return &s.p.halfs[s.side] }
func (s *pipeEnd) in() *half       { return &s.p.halfs[1-s.side] }
func (s *pipeEnd) other() *pipeEnd { return s.p.ends[1-s.side] }

func (s *pipeEnd) Write(pieces [][]byte) (n int, err error) {
	if s.closed {
		panic("write to a closed stream")
	}
	if s.reset {
		return 0, errors.New("broken pipe")
	}
	room := 60_000 - len(s.out().flight)
	if s.p.w.rng.IntN(4) == 0 {
		room = s.p.w.rng.IntN(200)
	}
	for _, b := range pieces {
		k := max(min(len(b), room), 0)
		s.out().flight = append(s.out().flight, b[:k]...)
		n += k
		if room -= k; k < len(b) {
			s.full = true
			break
		}
	}
	return n, nil
}

func (s *pipeEnd) Unacked() (int, error) {
	return len(s.out().flight), nil
}

func (s *pipeEnd) Finish() {
	if !s.reset {
		s.out().fin = true
	}
}

// Close ends the connection as a kernel does: with a reset if the owner wants
// one, or has not read everything; what was not read is gone.
func (s *pipeEnd) Close(abort bool) {
	if s.closed {
		panic("closed twice")
	}
	s.closed = true
	if len(s.in().arrived) > 0 {
		s.in().arrived = nil
		s.p.w.cutOff++
		abort = true
	}
	if abort {
		s.other().reset = true
		s.out().flight = nil
	}
	s.out().fin = true
}

// carry moves bytes of what one side has written to the other.
func (p *pipe) carry(side int) {
	s, r, h := p.ends[side], p.ends[1-side], &p.halfs[side]
	switch {
	case s.reset || r.reset:
	case r.closed: // nobody there
		s.reset = s.reset || !s.closed && len(h.flight) > 0
	default:
		k := p.w.rng.IntN(len(h.flight) + 1)
		h.arrived = append(h.arrived, h.flight[:k]...)
		h.flight = h.flight[k:]
		if len(h.flight) == 0 && h.fin {
			h.finDone = true
		}
	}
	if s.full && s.handed && !s.closed && len(h.flight) < 30_000 {
		s.full = false
		s.owner.c.HandleRoom(p.w.now, s.lane)
	}
}

// read hands up to r's owner what has arrived, in cuts, all of it or a part; then
// the end of the connection.
func (s *pipeEnd) read(all bool) {
	w, h := s.p.w, s.in()
	if !s.handed {
		return
	}
	for len(h.arrived) > 0 && !s.closed && (all || w.rng.IntN(8) > 0) {
		k := 1 + w.rng.IntN(len(h.arrived))
		if dst := s.owner.c.Want(s.lane); len(dst) > 0 && w.rng.IntN(2) == 0 {
			k = copy(dst, h.arrived[:k])
			h.arrived = h.arrived[k:]
			s.owner.c.HandlePlaced(w.now, s.lane, k)
			continue
		}
		b := append([]byte(nil), h.arrived[:k]...)
		h.arrived = h.arrived[k:]
		s.owner.c.HandleData(w.now, s.lane, b)
	}
	if s.closed || s.done || len(h.arrived) > 0 {
		return
	}
	switch {
	case s.reset:
		s.done = true
		s.owner.c.HandleClosed(w.now, s.lane, errors.New("reset"))
	case h.finDone:
		s.done = true
		s.owner.c.HandleClosed(w.now, s.lane, nil)
	}
}

// establish connects the two kernels; the owners learn of it when they poll.
func (w *tcpWorld) establish(d tcpDial) {
	p := &pipe{w: w}
	to := w.ends[1-d.from.n]
	port := uint16(32768 + 8*w.rng.IntN(1000) + d.lane)
	p.ends[0] = &pipeEnd{p: p, side: 0, owner: d.from, dial: d}
	p.ends[1] = &pipeEnd{p: p, side: 1, owner: to, port: port}
	w.pipes = append(w.pipes, p)
	d.from.news = append(d.from.news, p.ends[0])
	to.news = append(to.news, p.ends[1])
}

// poll is rdstcp.Net.Poll: it reads, and hands over a new connection when everything
// that had arrived on the others was.
func (e *tcpEnd) poll() {
	w := e.w
	all := w.rng.IntN(3) == 0
	for _, p := range w.pipes {
		for _, r := range p.ends {
			if r.owner == e && (all || w.rng.IntN(3) == 0) {
				r.read(all)
			}
		}
	}
	i := slices.IndexFunc(e.news, e.mayTake)
	if !all || i < 0 {
		return
	}
	r := e.news[i]
	e.news = slices.Delete(e.news, i, i+1)
	r.handed = true
	if r.side == 0 {
		r.lane = r.dial.lane
		e.c.HandleConnected(w.now, r.lane, r.dial.id, r, true)
		return
	}
	var err error
	e.blind() // it may have learnt in this turn
	if r.lane, err = e.c.HandleAccept(w.now, r, r.port); err != nil {
		r.Close(true)
	}
}
