package soft

import "github.com/rdsd/rdsd/verbs"

// With AckRemote a SEND or WRITE is complete when the response to a Read
// Request behind it has come: RFC 5040 section 5.5 has a Read Request processed
// only after everything before it was placed and delivered. A READ or atomic
// of the consumer is such a request; without one the QP makes a zero-length
// READ, a fence, one for as many work requests as it can.
const (
	fenceReserve = 2 // of the read depth, for fences
	fenceWRs     = 64
	fenceBytes   = 256 << 10
)

// waitKind says what a Read or Atomic Request in flight is for.
type waitKind uint8

const (
	waitRead waitKind = iota
	waitAtomic
	waitFence
	waitRoom // the middle of a long SEND
)

// wait is a Read or Atomic Request whose response is due.
type wait struct {
	pos  uint64 // the work request; of the others, the first not covered
	msn  uint32
	kind waitKind
}

// waitQueue is the queue of the requests in flight. Their responses come in order.
type waitQueue struct {
	w          []wait // power of two, grows up to limit
	head, tail uint64
	limit      uint64 // the negotiated depth, fences included
}

func (f *waitQueue) init(limit int) { f.limit = uint64(limit) }

func (f *waitQueue) empty() bool { return f.head == f.tail }
func (f *waitQueue) full() bool  { return f.tail-f.head >= f.limit }

func (f *waitQueue) push(x wait) {
	if f.tail-f.head == uint64(len(f.w)) {
		w := make([]wait, max(2*len(f.w), firstWaits))
		for i := f.head; i != f.tail; i++ {
			w[i&uint64(len(w)-1)] = f.w[i&uint64(len(f.w)-1)]
		}
		f.w = w
	}
	f.w[f.tail&uint64(len(f.w)-1)] = x
	f.tail++
}

// oldest returns the request whose response is due. There must be one.
func (f *waitQueue) oldest() *wait { return &f.w[f.head&uint64(len(f.w)-1)] }

// issued counts a Read or Atomic Request that has been made.
func (s *sendQueue) issued(x wait) {
	x.msn = s.readMSN
	s.readMSN++
	if s.waits.empty() {
		s.readOff = 0
	}
	s.waits.push(x)
	switch x.kind {
	case waitRead, waitAtomic:
		s.reads++
	case waitFence:
		s.fences++
	}
	s.unfenced, s.unfencedBytes = 0, 0
}

// answered removes the oldest request: everything before it is done.
func (q *qp) answered() {
	s := &q.sq
	x := *s.waits.oldest()
	s.waits.head++
	s.readOff = 0
	switch x.kind {
	case waitFence:
		s.fences--
		q.acknowledge(x.pos)
	case waitRoom:
		s.room = roomGranted
		q.acknowledge(x.pos)
	default:
		s.reads--
		s.at(x.pos).done = true
		q.acknowledge(x.pos + 1)
	}
	q.completeSends()
	q.dev.markDirty(q) // a fence, the depth or the window may have held others back
}

// acknowledge notes that the peer has everything that was sent before pos.
func (q *qp) acknowledge(pos uint64) {
	s := &q.sq
	if q.attr.Ack == verbs.AckLocal {
		return
	}
	for ; s.acked < pos; s.acked++ {
		w := s.at(s.acked)
		n := w.messages()
		s.windowMsgs -= n
		if n > 0 {
			s.windowBytes -= w.length
		}
	}
}

// messages returns how many messages of the request take a place where the peer
// keeps what waits for a receive.
func (w *sendWR) messages() uint64 {
	switch w.op {
	case verbs.OpSend, verbs.OpSendWithInv, verbs.OpRDMAWriteWithImm:
		return 1
	case verbs.OpSendWithImm:
		return 2
	}
	return 0
}

// window reports whether the SEND w may begin. With AckRemote no more is sent
// unacknowledged than the peer can put aside without a receive. So neither stream
// ever stops, and acknowledgements arrive however long both sides wait for receives.
func (q *qp) window(w *sendWR) bool {
	s := &q.sq
	n := w.messages()
	if n == 0 || q.attr.Ack == verbs.AckLocal || !q.known || s.windowMsgs == 0 {
		return true
	}
	return s.windowMsgs+n <= uint64(q.peer.ParkMsgs)*16 && s.windowBytes+w.length <= uint64(q.peer.ParkKiB)<<10
}

// opened counts a request that has begun.
func (q *qp) opened(w *sendWR) {
	if n := w.messages(); n > 0 && q.attr.Ack == verbs.AckRemote {
		q.sq.windowMsgs += n
		q.sq.windowBytes += w.length
	}
}

// fence makes a fence if one is wanted: at once if the QP is idle, because there is
// nothing to wait for, otherwise when enough requests have gathered. A peer of
// another kind gets none while another request is in flight: the answer of siw would
// have stale data, see staleAnswer.
func (q *qp) fence(idle bool) bool {
	s := &q.sq
	if s.unfenced == 0 || q.attr.Ack == verbs.AckLocal || s.mid() || q.serve.mid || q.state == terminating || q.intake == ended {
		return false
	}
	if s.waits.full() || s.fences >= fenceReserve || !q.known && !s.waits.empty() {
		return false
	}
	if !(idle && s.fences == 0) && s.unfenced < fenceWRs && s.unfencedBytes < fenceBytes {
		return false
	}
	if !q.emitFence() {
		return false
	}
	s.issued(wait{pos: s.gen, kind: waitFence})
	q.serve.last = false
	return true
}
