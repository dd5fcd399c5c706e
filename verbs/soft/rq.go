package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/verbs"
)

// recvWR is a posted receive. Its SGL is a view of memory allocated with the
// queue.
type recvWR struct {
	wrid  uint64
	sgl   []verbs.SGE
	total uint64
	slot  uint32
}

func newRecvWRs(n, sges int) []recvWR {
	w := make([]recvWR, n)
	all := make([]verbs.SGE, n*sges)
	for i := range w {
		w[i].slot = uint32(i)
		w[i].sgl = all[i*sges : i*sges : (i+1)*sges]
	}
	return w
}

func (w *recvWR) set(r *verbs.RecvWR) error {
	if len(r.SGL) > cap(w.sgl) {
		return fmt.Errorf("soft: receive of %d SGEs, limit %d: %w", len(r.SGL), cap(w.sgl), unix.EINVAL)
	}
	w.total = 0
	for i := range r.SGL {
		if r.SGL[i].Length == 0 {
			return errZeroSGE
		}
		w.total += uint64(r.SGL[i].Length)
	}
	w.wrid = r.WRID
	w.sgl = append(w.sgl[:0], r.SGL...)
	return nil
}

var (
	errZeroSGE = fmt.Errorf("soft: SGE of length 0; use an empty list: %w", unix.EINVAL)
	errRQFull  = fmt.Errorf("soft: receive queue full: %w", unix.ENOMEM)
	errSRQFull = fmt.Errorf("soft: shared receive queue full: %w", unix.ENOMEM)
	errSRQGone = fmt.Errorf("soft: shared receive queue is gone: %w", unix.EINVAL)
	errOnSRQ   = fmt.Errorf("soft: queue pair uses a shared receive queue: %w", unix.EINVAL)
)

// recvQueue is a QP's own receive queue. A slot is in use from its post until its
// completion is polled.
type recvQueue struct {
	w                []recvWR // power of two
	cap              uint64
	tail, head, free uint64 // posted, consumed, released
}

func (r *recvQueue) post(wr []verbs.RecvWR) (int, error) {
	for i := range wr {
		if r.tail-r.free == r.cap {
			return i, errRQFull
		}
		if err := r.w[r.tail&uint64(len(r.w)-1)].set(&wr[i]); err != nil {
			return i, err
		}
		r.tail++
	}
	return len(wr), nil
}

// take returns the next receive, or nil if there is none. The receive is valid until
// its completion is polled.
func (r *recvQueue) take() *recvWR {
	if r.head == r.tail {
		return nil
	}
	w := &r.w[r.head&uint64(len(r.w)-1)]
	r.head++
	return w
}

// srq implements verbs.SRQ. It is a stack: the receive posted last is used first, so
// that as few buffers as possible are touched.
type srq struct {
	dev     *Device
	pd      *pd
	w       []recvWR // never fewer than cap, for a Resize may be down
	cap     int
	sges    int
	posted  []uint32 // slots, stack
	free    []uint32
	waiting lists.List[qp] // with a message for which there is none
	limit   int            // of AsyncSRQLimit, 0: not armed
	users   int
	gone    bool
}

// CreateSRQ implements verbs.PD.
func (p *pd) CreateSRQ(wrs, sges int) (verbs.SRQ, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	if wrs < 1 || wrs > maxWR || sges < 0 || sges > maxSGE {
		return nil, fmt.Errorf("soft: shared receive queue of %d receives with %d SGEs, limits %d and %d: %w", wrs, sges, maxWR, maxSGE, unix.EINVAL)
	}
	s := &srq{dev: p.dev, pd: p, sges: sges}
	s.grow(wrs)
	p.users++
	return s, nil
}

// PostRecv implements verbs.SRQ.
func (s *srq) PostRecv(wr []verbs.RecvWR) (int, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	n, err := s.push(wr)
	for n > 0 && s.waiting.N > 0 {
		s.dev.markReady(s.waiting.Pop())
	}
	return n, err
}

func (s *srq) push(wr []verbs.RecvWR) (int, error) {
	for i := range wr {
		k := len(s.free) - 1
		if s.outstanding() >= s.cap {
			return i, errSRQFull
		}
		slot := s.free[k]
		if err := s.w[slot].set(&wr[i]); err != nil {
			return i, err
		}
		s.free = s.free[:k]
		s.posted = append(s.posted, slot)
	}
	return len(wr), nil
}

func (s *srq) take() *recvWR {
	k := len(s.posted) - 1
	if k < 0 {
		return nil
	}
	slot := s.posted[k]
	s.posted = s.posted[:k]
	s.checkLimit()
	return &s.w[slot]
}

// grow makes it a queue of n receives. Receives in progress keep their memory.
func (s *srq) grow(n int) {
	s.cap = n
	old := len(s.w)
	if n <= old {
		return
	}
	w := newRecvWRs(n, s.sges)
	copy(w, s.w)
	s.w = w
	s.posted = append(make([]uint32, 0, n), s.posted...)
	free := make([]uint32, 0, n)
	for i := n - 1; i >= old; i-- {
		free = append(free, uint32(i))
	}
	s.free = append(free, s.free...)
}

// outstanding returns how many receives are posted, or taken and not complete.
func (s *srq) outstanding() int { return len(s.w) - len(s.free) }

// Cap implements verbs.SRQ.
func (s *srq) Cap() int { return s.cap }

// Resize implements verbs.SRQ.
func (s *srq) Resize(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if least := max(s.outstanding(), s.limit, 1); n < least || n > maxWR {
		return fmt.Errorf("soft: shared receive queue of %d receives, at least %d and at most %d: %w", n, least, maxWR, unix.EINVAL)
	}
	s.grow(n)
	return nil
}

func (s *srq) usable() error {
	if s.dev.closed {
		return errClosed
	}
	if s.gone {
		return errSRQGone
	}
	return nil
}

// Limit implements verbs.SRQ.
func (s *srq) Limit(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if n < 0 || n > s.cap {
		return fmt.Errorf("soft: limit of %d receives, at most %d: %w", n, s.cap, unix.EINVAL)
	}
	s.limit = n
	s.checkLimit()
	return nil
}

func (s *srq) checkLimit() {
	if len(s.posted) < s.limit {
		s.limit = 0
		s.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSRQLimit, SRQ: s})
	}
}

// put gives back the slot of a completed receive.
func (s *srq) put(w *recvWR) { s.free = append(s.free, w.slot) }

// Destroy implements verbs.SRQ: EBUSY while a QP uses it.
func (s *srq) Destroy() error {
	if s.gone {
		return errSRQGone
	}
	if s.users > 0 {
		return fmt.Errorf("soft: shared receive queue in use by %d queue pairs: %w", s.users, unix.EBUSY)
	}
	s.gone = true
	s.pd.users--
	s.dev.async.forget(func(e *verbs.AsyncEvent) bool { return e.SRQ == s })
	return nil
}
