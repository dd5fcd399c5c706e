package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// sendWR is a posted send work request.
type sendWR struct {
	wrid   uint64
	raddr  uint64
	length uint64 // bytes of the message
	imm    uint32
	off    uint64 // bytes of it made into FPDUs
	end    uint64 // stream position behind its last FPDU
	rkey   uint32
	msn    uint32
	op     verbs.Opcode
	flags  verbs.SendFlags
	status verbs.WCStatus // a local failure found when its turn came
	begun  bool           // its first FPDU is in the output
	placed bool           // WRITE_WITH_IMM: the WRITE's FPDUs are
	made   bool           // all its FPDUs are
	done   bool           // READ, atomic: the response is complete
	sgl    []verbs.SGE    // view of sendQueue.sges
}

// sendQueue is the SQ. Positions count up for ever:
//
//	free <= done <= gen <= tail
//
// A slot is outstanding from its post (tail) until a completion of it or of a
// later one is polled (free).
type sendQueue struct {
	w                     []sendWR // power of two, grows with what is outstanding
	inline                []byte
	maxInline, maxSGE     int
	always                verbs.SendFlags // SendSignaled with SQSigAll
	cap                   uint64
	tail, gen, done, free uint64

	extra []extra // by slot; nil until a request needs it

	sendMSN   uint32 // of the next SEND
	readMSN   uint32 // of the next Read or Atomic Request
	atomicMSN uint32 // of the Atomic Response expected next
	reads     uint64 // READs and atomics begun and not complete
	depth     uint64 // limit of reads
	waits     waitQueue
	readOff   uint64 // bytes received of the oldest READ

	// AckRemote: see fence.go.
	acked         uint64 // the peer has everything before this position
	fences        int    // on their way
	room          roomState
	unfenced      uint64 // WRs behind the last fence or READ ...
	unfencedBytes uint64
	windowMsgs    uint64 // messages begun and not acknowledged ...
	windowBytes   uint64
}

// extra has what only some requests need.
type extra struct {
	atomic iwarp.AtomicRequest
	bind   bindArgs
}

func (s *sendQueue) init(c verbs.QPCap) {
	s.maxInline, s.maxSGE = c.MaxInline, c.MaxSendSGE
	s.cap = uint64(c.MaxSendWR)
	s.sendMSN, s.readMSN, s.atomicMSN = 1, 1, 1
	s.depth = uint64(c.ReadDepth)
	s.waits.init(c.ReadDepth)
}

// firstWRs is how many work requests a queue has memory for at first, and after it
// was idle.
const firstWRs = 4

// grow doubles the memory. Outstanding requests keep their positions.
func (s *sendQueue) grow() {
	n := min(max(2*len(s.w), firstWRs), ceilPow2(int(s.cap)))
	old := *s
	s.w = make([]sendWR, n)
	s.inline = make([]byte, n*s.maxInline)
	if old.extra != nil {
		s.extra = make([]extra, n)
	}
	sges := make([]verbs.SGE, n*s.maxSGE)
	for i := range s.w {
		s.w[i].sgl = sges[i*s.maxSGE : i*s.maxSGE : (i+1)*s.maxSGE]
	}
	for pos := s.free; pos != s.tail; pos++ {
		from, to := old.at(pos), s.at(pos)
		sgl := append(to.sgl, from.sgl...)
		*to = *from
		to.sgl = sgl
		copy(s.inlineOf(pos), old.inlineOf(pos))
		if s.extra != nil {
			s.extra[pos&uint64(len(s.w)-1)] = old.extra[pos&uint64(len(old.w)-1)]
		}
	}
}

// shrink gives up the memory. Nothing is outstanding.
func (s *sendQueue) shrink() { s.w, s.inline, s.extra = nil, nil, nil }

func (s *sendQueue) at(pos uint64) *sendWR { return &s.w[pos&uint64(len(s.w)-1)] }

// inlineOf returns the inline storage of a slot.
func (s *sendQueue) inlineOf(pos uint64) []byte {
	i := int(pos&uint64(len(s.w)-1)) * s.maxInline
	return s.inline[i : i+s.maxInline : i+s.maxInline]
}

var (
	errSQFull = fmt.Errorf("soft: send queue full: %w", unix.ENOMEM)
	errInline = fmt.Errorf("soft: inline data above the granted size: %w", unix.EINVAL)
	errKey    = fmt.Errorf("soft: inline data of an SGL needs a valid key and bounds: %w", unix.EINVAL)
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wr []verbs.SendWR) (int, error) {
	switch {
	case q.state == destroyed:
		return 0, errDestroyed
	case !q.state.queues():
		return 0, fmt.Errorf("soft: PostSend in %v, before Connect or Accept: %w", q.State(), unix.EINVAL)
	}
	n := 0
	var err error
	for n < len(wr) {
		if err = q.queue(&wr[n]); err != nil {
			break
		}
		n++
	}
	switch {
	case n == 0:
	case q.state == failed:
		q.flushSends(q.sq.done, verbs.WCWRFlushErr)
	case q.state.connected():
		q.generate()
		q.dev.markDirty(q)
	}
	return n, err
}

// queue makes the immediate checks and takes a slot.
func (q *qp) queue(wr *verbs.SendWR) error {
	s := &q.sq
	if s.tail-s.free >= s.cap {
		return errSQFull
	}
	q.busy = true
	if s.tail-s.free == uint64(len(s.w)) {
		q.growSends()
	}
	w := s.at(s.tail)
	if len(wr.SGL) > cap(w.sgl) {
		return fmt.Errorf("soft: %d SGEs, limit %d: %w", len(wr.SGL), cap(w.sgl), unix.EINVAL)
	}
	var x extra
	switch wr.Op {
	case verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSendWithInv, verbs.OpLocalInv:
	case verbs.OpRDMARead:
		if err := s.checkRead(wr); err != nil {
			return err
		}
	case verbs.OpSendWithImm, verbs.OpRDMAWriteWithImm:
		if q.state.connected() && !q.peer.Immediate {
			return peerLacks(wr.Op)
		}
	case verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		if q.state.connected() && !q.peer.Atomics {
			return peerLacks(wr.Op)
		}
		if err := q.atomicPosted(wr); err != nil {
			return err
		}
		x.atomic = atomicRequest(wr.Op, &wr.Atomic)
	case verbs.OpBindMW:
	default:
		return fmt.Errorf("soft: %v is unknown: %w", wr.Op, unix.EINVAL)
	}
	if (wr.Op == verbs.OpLocalInv || wr.Op == verbs.OpBindMW) && len(wr.SGL)+len(wr.Inline) > 0 {
		return fmt.Errorf("soft: %s with an SGL or inline data: %w", wr.Op, unix.EINVAL)
	}
	if wr.Inline != nil || wr.Flags&^sendFlags != 0 {
		if err := checkInline(wr); err != nil {
			return err
		}
	}
	total := uint64(len(wr.Inline))
	for i := range wr.SGL {
		if wr.SGL[i].Length == 0 {
			return errZeroSGE
		}
		total += uint64(wr.SGL[i].Length)
	}
	sgl := w.sgl[:0]
	if wr.Flags&verbs.SendInline != 0 {
		if err := q.copyInline(wr, total); err != nil {
			return err
		}
	} else {
		sgl = append(sgl, wr.SGL...)
	}
	if wr.Op == verbs.OpBindMW {
		var err error
		if x.bind, err = q.bindPosted(wr.Bind); err != nil {
			return err
		}
	}
	if wr.Op == verbs.OpBindMW || wr.Op.Atomic() {
		s.setExtra(x)
	}
	*w = sendWR{wrid: wr.WRID, raddr: wr.RemoteAddr, rkey: wr.RKey, imm: wr.Imm, length: total, op: wr.Op, flags: wr.Flags | s.always, sgl: sgl}
	s.tail++
	return nil
}

// growSends makes room for the next send.
func (q *qp) growSends() {
	if q.sq.grow(); len(q.sq.w) > firstWRs {
		q.trimLater()
	}
}

// checkRead returns what is wrong with a READ, or nil.
func (s *sendQueue) checkRead(wr *verbs.SendWR) error {
	switch {
	case s.depth == 0:
		return fmt.Errorf("soft: READ on a queue pair with read depth 0: %w", unix.EINVAL)
	case wr.Flags&verbs.SendInline != 0:
		return fmt.Errorf("soft: inline READ: %w", unix.EINVAL)
	}
	return nil
}

// setExtra keeps x for the send at the tail.
func (s *sendQueue) setExtra(x extra) {
	if s.extra == nil {
		s.extra = make([]extra, len(s.w))
	}
	s.extra[s.tail&uint64(len(s.w)-1)] = x
}

const sendFlags = verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline

// checkInline returns what is wrong with flags and Inline, or nil.
func checkInline(wr *verbs.SendWR) error {
	switch {
	case wr.Flags&^sendFlags != 0:
		return fmt.Errorf("soft: unknown send flags %#x: %w", uint8(wr.Flags&^sendFlags), unix.EINVAL)
	case wr.Flags&verbs.SendInline == 0:
		return fmt.Errorf("soft: inline data without SendInline: %w", unix.EINVAL)
	case len(wr.SGL) > 0:
		return fmt.Errorf("soft: inline data and an SGL: %w", unix.EINVAL)
	}
	return nil
}

// copyInline copies the data of an inline request into the slot's storage.
func (q *qp) copyInline(wr *verbs.SendWR, total uint64) error {
	if total > uint64(q.sq.maxInline) {
		return errInline
	}
	b := q.sq.inlineOf(q.sq.tail)
	if wr.Inline != nil {
		copy(b, wr.Inline)
		return nil
	}
	ps, ok := q.resolve(wr.SGL, q.pd, 0, total, 0)
	if !ok {
		return errKey
	}
	for _, p := range ps {
		b = b[copy(b, p.mem):]
	}
	return nil
}

// peerLacks returns the error for an opcode that the connection cannot do.
func peerLacks(op verbs.Opcode) error {
	return fmt.Errorf("soft: %s: the peer does not understand it: %w: %w", op, unix.EOPNOTSUPP, unix.EINVAL)
}

// isDone reports whether the request at pos has succeeded.
func (q *qp) isDone(pos uint64, w *sendWR) bool {
	switch {
	case !w.made || w.end > q.out.written:
		return false
	case w.op.Reads():
		return w.done
	case q.attr.Ack == verbs.AckLocal || w.op == verbs.OpLocalInv || w.op == verbs.OpBindMW:
		return true
	}
	return pos < q.sq.acked
}

// completeDone completes, in order, the finished requests posted before pos.
func (q *qp) completeDone(pos uint64) {
	s := &q.sq
	for ; s.done < pos; s.done++ {
		w := s.at(s.done)
		if !q.isDone(s.done, w) {
			return
		}
		q.acknowledge(s.done + 1)
		if w.flags&verbs.SendSignaled != 0 {
			q.completeSend(s.done, w, verbs.WCSuccess)
		}
	}
}

// completeSends completes finished requests, and carries out what waits until
// everything before it is complete: a local failure, or the orderly close.
func (q *qp) completeSends() {
	s := &q.sq
	q.completeDone(s.tail)
	switch {
	case !q.state.connected():
	case s.done < s.tail && s.at(s.done).status != 0:
		q.fail(&fault{code: iwarp.TermLocal, term: true, named: true, pos: s.done, sq: s.at(s.done).status, err: errLocal})
	case s.done == q.closeAt && q.serve.empty() && q.out.pending == 0:
		q.fail(&fault{err: errDisconnected})
	case q.drain == draining && s.done == s.gen && !s.mid():
		q.drain = drained
		q.dev.raise(verbs.AsyncEvent{Type: verbs.AsyncSQDrained, QP: q})
	}
	q.drained()
}
