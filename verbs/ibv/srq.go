//go:build ibv && linux

package ibv

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// srq implements verbs.SRQ. A slot is in use from the post until the completion is polled.
// This package watches the limit, because the adapter does not know of completions that
// nobody has polled.
type srq struct {
	pd     *pd
	c      *C.struct_ibv_srq
	hw     int
	maxSGE int
	cap    int
	ids    []uint64 // by slot
	idle   []uint32 // slots not in use
	used   int
	posted int // how many are at the adapter
	limit  int // 0 if it is not armed
	users  int
	gone   bool
}

// CreateSRQ implements verbs.PD.
func (p *pd) CreateSRQ(maxWR, sges int) (verbs.SRQ, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	a := &p.dev.attr
	switch {
	case maxWR < 1 || maxWR > a.MaxRecvWR:
		return nil, invalid("shared receive queue of %d receives, limit %d", maxWR, a.MaxRecvWR)
	case sges < 0 || sges > min(a.MaxSGE, int(p.dev.limits.max_srq_sge)):
		return nil, invalid("shared receive queue of %d SGEs, limit %d", sges, a.MaxSGE)
	}
	s := &srq{pd: p, hw: min(max(2*maxWR, 64), a.MaxRecvWR), maxSGE: sges, cap: maxWR}
	var e C.int
	if s.c = C.ibvx_create_srq(p.c, C.int(s.hw), C.int(max(sges, 1)), &e); s.c == nil {
		return nil, errno(e, "shared receive queue")
	}
	p.used++
	p.dev.srqs[s] = struct{}{}
	return s, nil
}

var errSRQGone = invalid("the shared receive queue is destroyed")
var errSRQFull = fmt.Errorf("ibv: shared receive queue full: %w", unix.ENOMEM)

// PostRecv implements verbs.SRQ.
func (s *srq) PostRecv(wr []verbs.RecvWR) (int, error) {
	if s.gone || s.pd.dev.closed {
		return 0, errSRQGone
	}
	d, done := s.pd.dev, 0
	for done < len(wr) {
		n, sges := 0, 0
		var err error
		for n < batch && done+n < len(wr) {
			w := &wr[done+n]
			if err = checkRecv(w, s.maxSGE); err != nil {
				break
			}
			if s.used == s.cap {
				err = errSRQFull
				break
			}
			slot := s.take(w.WRID)
			d.recvs[n] = C.struct_ibvx_recv{id: C.uint64_t(wrID(kindSRQ, 0, uint64(slot))), first: C.uint32_t(sges)}
			nsge := d.recvSGL(sges, w.SGL)
			d.recvs[n].nsge = C.uint32_t(nsge)
			sges += nsge
			n++
		}
		if n > 0 {
			var posted C.int
			e := C.ibvx_post_recv(nil, s.c, d.b, C.int(n), &posted)
			for i := int(posted); i < n; i++ {
				s.release(uint32(uint64(d.recvs[i].id) & posMask))
			}
			done += int(posted)
			s.posted += int(posted)
			if e != 0 {
				return done, errno(e, "posting to a shared receive queue")
			}
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (s *srq) take(id uint64) uint32 {
	s.used++
	if n := len(s.idle); n > 0 {
		slot := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.ids[slot] = id
		return slot
	}
	s.ids = append(s.ids, id)
	return uint32(len(s.ids) - 1)
}

func (s *srq) release(slot uint32) {
	s.used--
	s.idle = append(s.idle, slot)
}

// taken notes that the adapter has used a receive.
func (s *srq) taken() {
	s.posted--
	s.checkLimit()
}

func (s *srq) checkLimit() {
	if s.posted < s.limit {
		s.limit = 0
		s.pd.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSRQLimit, SRQ: s})
	}
}

// Limit implements verbs.SRQ.
func (s *srq) Limit(n int) error {
	if s.gone || s.pd.dev.closed {
		return errSRQGone
	}
	if n < 0 || n > s.cap {
		return invalid("limit of %d receives of %d", n, s.cap)
	}
	s.limit = n
	s.checkLimit()
	s.pd.dev.updateWake()
	return nil
}

// Cap implements verbs.SRQ.
func (s *srq) Cap() int { return s.cap }

// Resize implements verbs.SRQ.
func (s *srq) Resize(n int) error {
	if s.gone || s.pd.dev.closed {
		return errSRQGone
	}
	if n < 1 || n > s.pd.dev.attr.MaxRecvWR || n < s.used || n < s.limit {
		return invalid("a shared receive queue of %d receives, with %d in use and a limit of %d armed", n, s.used, s.limit)
	}
	if n > s.hw {
		attr := C.struct_ibv_srq_attr{max_wr: C.uint32_t(n)}
		if e := C.ibv_modify_srq(s.c, &attr, C.IBV_SRQ_MAX_WR); e != 0 {
			return errno(abs(e), "resizing a shared receive queue")
		}
		s.hw = n
	}
	s.cap = n
	return nil
}

// Destroy implements verbs.SRQ.
func (s *srq) Destroy() error {
	if s.gone || s.pd.dev.closed {
		return errSRQGone
	}
	if s.users > 0 {
		return fmt.Errorf("ibv: the shared receive queue is in use by %d queue pairs: %w", s.users, unix.EBUSY)
	}
	if e := C.ibv_destroy_srq(s.c); e != 0 {
		return errno(abs(e), "destroying a shared receive queue")
	}
	s.gone = true
	s.pd.used--
	delete(s.pd.dev.srqs, s)
	s.pd.dev.forget(func(e *verbs.AsyncEvent) bool { return e.SRQ == s })
	return nil
}

func checkRecv(w *verbs.RecvWR, limit int) error {
	if len(w.SGL) > limit {
		return invalid("a receive of %d SGEs, granted %d", len(w.SGL), limit)
	}
	return checkSGL(w.SGL)
}

func checkSGL(sgl []verbs.SGE) error {
	for i := range sgl {
		if sgl[i].Length == 0 {
			return invalid("SGE %d has length 0: send no bytes with an empty list", i)
		}
	}
	return nil
}

// recvSGL is copySGL for a receive. siw's library refuses a receive without SGEs, but
// accepts an SGE of no bytes.
func (d *Device) recvSGL(first int, sgl []verbs.SGE) int {
	if d.siw && len(sgl) == 0 {
		d.sges[first] = verbs.SGE{}
		return 1
	}
	return d.copySGL(first, sgl)
}

// copySGL copies a list into the batch at index first, with the driver's addresses.
func (d *Device) copySGL(first int, sgl []verbs.SGE) int {
	n := copy(d.sges[first:], sgl)
	if d.siw {
		for i := first; i < first+n; i++ {
			if m := d.mrs[d.sges[i].LKey]; m != nil {
				d.sges[i].Addr += m.shift
			}
		}
	}
	return n
}
