package shm

import (
	"errors"
	"fmt"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
)

var errUnpublished = errors.New("shared memory segment: handed over with entries that are not published")

// HandOverRings has the private indices of the daemon's ends of the four rings go over. All that was
// written has been published. The shared indices are not read: each end that goes on compares those of
// the client with its own at its next look, as ever, and a client that has published an impossible one
// is found there. After an error, the ends must not be used.
func (s *Segment) HandOverRings(st *handover.State) {
	if s.eventProducer.Pending() || s.sendRetProducer.Pending() {
		st.Refuse(errUnpublished)
	}
	s.subConsumer.handOver(st)
	s.eventProducer.handOver(st)
	s.sendRetProducer.handOver(st)
	s.recvRetConsumer.handOver(st)
}

func (w *producer[T]) handOver(s *handover.State) {
	s.U64(&w.tail)
	s.U64(&w.head)
	s.Bool(&w.isBad)
	s.U64(&w.bad)
	if s.Reads() {
		w.next = w.tail
	}
	if size := uint64(len(w.ring.entries)); w.tail-w.head > size {
		s.Fail("%d entries published and %d taken of a ring of %d", w.tail, w.head, size)
	}
}

func (t *consumer[T]) handOver(s *handover.State) {
	s.U64(&t.head)
	s.U64(&t.next)
	s.U64(&t.tail)
	s.Bool(&t.isBad)
	s.U64(&t.bad)
	if size := uint64(len(t.ring.entries)); t.tail-t.head > size || t.next-t.head > t.tail-t.head {
		s.Fail("%d entries released, %d taken and %d published of a ring of %d", t.head, t.next, t.tail, size)
	}
}

// Retake marks the chunk that Alloc(n) returned in another process as allocated. It is for a
// new arena of the same windows: the caller names all chunks in use, in any order, and then
// calls Retaken. Alloc and Free come after that. It returns an error for a chunk that no
// arena can have given out together with those named before.
func (a *Arena) Retake(chunk uint32, n int) error {
	pi := int(chunk / pageUnits)
	bad := func(why string) error {
		return fmt.Errorf("chunk %d of %d bytes in an arena of %d windows: %s", chunk, n, len(a.windows), why)
	}
	if n <= 0 || n > abi.MaxMessage || pi >= len(a.pages) {
		return bad("outside the arena")
	}
	p, win := &a.pages[pi], &a.windows[pi/windowPages]
	if n > maxSmall {
		k := (n + PageSize - 1) / PageSize
		switch at := pi % windowPages; {
		case chunk%pageUnits != 0, at+k > windowPages:
			return bad("not whole pages of one window")
		case win.free>>at&spanMask(k) != spanMask(k):
			return bad("in use already")
		}
		a.takeSpan(int32(pi), k)
		return nil
	}
	c := classOf(n)
	i := uint16(chunk % pageUnits >> c)
	switch {
	case uint32(i)<<c != chunk%pageUnits:
		return bad("not where a chunk of this size begins")
	case p.class == classNone:
		win.free &^= 1 << (pi % windowPages)
		*p = page{class: c, first: endOfList, next: noPage, prev: noPage}
		clear(a.links(int32(pi)))
	case p.class != c:
		return bad("in a page of another size")
	}
	link := a.links(int32(pi))
	if link[i] == inUse {
		return bad("in use already")
	}
	link[i] = inUse
	p.used++
	p.fresh = max(p.fresh, i+1)
	a.inUse += 1 << (c + minShift)
	return nil
}

// Retaken ends a series of Retake: all other chunks are free.
func (a *Arena) Retaken() {
	for pi := range a.pages {
		p := &a.pages[pi]
		if int(p.class) >= numClasses {
			continue
		}
		link := a.links(int32(pi))
		for i := int(p.fresh) - 1; i >= 0; i-- {
			if link[i] != inUse {
				link[i], p.first = p.first, uint16(i)
			}
		}
		if int(p.used) < pageUnits>>p.class {
			a.pushPartial(p.class, int32(pi))
		}
	}
}
