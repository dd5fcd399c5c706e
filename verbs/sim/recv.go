package sim

import (
	"fmt"

	"github.com/rdsd/rdsd/verbs"
	"golang.org/x/sys/unix"
)

// recvQueue is a ring of receives, each with room for maxSGE pieces.
type recvQueue struct {
	wrid        []uint64
	lens        []uint8
	sges        []verbs.SGE
	maxSGE      int
	cap         int
	head, n     int
	outstanding int // posted and not released
}

func newRecvQueue(capacity, maxSGE int) recvQueue {
	return recvQueue{
		wrid: make([]uint64, capacity), lens: make([]uint8, capacity), sges: make([]verbs.SGE, capacity*maxSGE),
		maxSGE: maxSGE, cap: capacity,
	}
}

// post queues receives up to the first invalid one.
func (r *recvQueue) post(wr []verbs.RecvWR) (n int, err error) {
	for i := range wr {
		w := &wr[i]
		if len(w.SGL) > r.maxSGE {
			return i, fmt.Errorf("sim: PostRecv: %d SGEs, at most %d: %w", len(w.SGL), r.maxSGE, unix.EINVAL)
		}
		if hasEmpty(w.SGL) {
			return i, fmt.Errorf("sim: PostRecv: SGE of length 0: %w", unix.EINVAL)
		}
		if r.outstanding == r.cap {
			return i, errRecvFull
		}
		at := (r.head + r.n) % r.cap
		r.wrid[at], r.lens[at] = w.WRID, uint8(len(w.SGL))
		copy(r.sges[at*r.maxSGE:], w.SGL)
		r.n++
		r.outstanding++
	}
	return len(wr), nil
}

func hasEmpty(sgl []verbs.SGE) bool {
	for i := range sgl {
		if sgl[i].Length == 0 {
			return true
		}
	}
	return false
}

// take removes the first receive; its list is valid until the next post.
func (r *recvQueue) take() (wrid uint64, sgl []verbs.SGE) {
	at := r.head
	r.head = (at + 1) % r.cap
	r.n--
	return r.wrid[at], r.sges[at*r.maxSGE:][:r.lens[at]]
}

// resize moves the receives to a ring of n.
func (r *recvQueue) resize(n int) {
	to := newRecvQueue(n, r.maxSGE)
	to.n, to.outstanding = r.n, r.outstanding
	for i := range r.n {
		at := (r.head + i) % r.cap
		to.wrid[i], to.lens[i] = r.wrid[at], r.lens[at]
		copy(to.sges[i*r.maxSGE:], r.sges[at*r.maxSGE:][:r.lens[at]])
	}
	*r = to
}

// SRQ implements verbs.SRQ: first in, first out over all its queue pairs.
type SRQ struct {
	pd      *PD
	queue   recvQueue
	users   int
	limit   int   // of AsyncSRQLimit
	waiting []*QP // whose next message waits for a receive, oldest first
	gone    bool
}

// CreateSRQ implements verbs.PD.
func (pd *PD) CreateSRQ(maxWR, maxSGE int) (verbs.SRQ, error) {
	if err := pd.usable("CreateSRQ"); err != nil {
		return nil, err
	}
	if a := &pd.dev.attr; maxWR < 1 || maxWR > a.MaxRecvWR || maxSGE < 0 || maxSGE > a.MaxSGE {
		return nil, pd.dev.invalid("CreateSRQ", fmt.Sprintf("%d receives of %d SGEs", maxWR, maxSGE))
	}
	pd.uses++
	return &SRQ{pd: pd, queue: newRecvQueue(maxWR, maxSGE)}, nil
}

// PostRecv implements verbs.SRQ.
func (s *SRQ) PostRecv(wr []verbs.RecvWR) (int, error) {
	if s.pd.dev.dead {
		return 0, s.pd.dev.deadError("PostRecv")
	}
	if s.gone {
		return 0, s.pd.dev.invalid("PostRecv", "shared receive queue destroyed")
	}
	n, err := s.queue.post(wr)
	for k := min(s.queue.n, len(s.waiting)); k > 0; k-- {
		q := s.waiting[0]
		copy(s.waiting, s.waiting[1:])
		s.waiting = s.waiting[:len(s.waiting)-1]
		q.peer.out.resume()
	}
	return n, err
}

// Destroy implements verbs.SRQ. EBUSY: a queue pair uses it.
func (s *SRQ) Destroy() error {
	if s.pd.dev.dead {
		return nil
	}
	if s.gone {
		return s.pd.dev.invalid("Destroy", "shared receive queue destroyed")
	}
	if s.users > 0 {
		return fmt.Errorf("sim: SRQ.Destroy: %d queue pairs use it: %w", s.users, unix.EBUSY)
	}
	s.gone = true
	s.pd.uses--
	s.pd.dev.forgetAsync(func(e *verbs.AsyncEvent) bool { return e.SRQ == s })
	return nil
}

// forget drops a QP that will take no more receives.
func (s *SRQ) forget(q *QP) {
	for i, w := range s.waiting {
		if w == q {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return
		}
	}
}
