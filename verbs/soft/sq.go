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
	off    uint64 // bytes of it made into FPDUs
	end    uint64 // stream position behind its last FPDU
	rkey   uint32
	msn    uint32
	op     verbs.Opcode
	flags  verbs.SendFlags
	status verbs.WCStatus // a local failure found when its turn came
	made   bool           // all its FPDUs are in the output
	done   bool           // READ: the response is complete
	sgl    []verbs.SGE    // view of sendQueue.sges
}

// sendQueue is the SQ. Positions count up for ever:
//
//	free <= done <= gen <= tail
//
// A slot is outstanding from its post (tail) until a completion of it or of a
// later one is polled (free).
type sendQueue struct {
	w                     []sendWR // power of two
	inline                []byte
	maxInline             int
	cap                   uint64
	tail, gen, done, free uint64

	sendMSN uint32 // of the next SEND
	readMSN uint32 // of the next Read Request
	reads   uint64 // READs begun and not complete
	readPos uint64 // no incomplete READ is before this position
	readOff uint64 // bytes received of the oldest READ
	depth   uint64 // limit of reads
}

func (s *sendQueue) init(c verbs.QPCap) {
	n := ceilPow2(max(c.MaxSendWR, 1))
	s.w = make([]sendWR, n)
	sges := make([]verbs.SGE, n*c.MaxSendSGE)
	for i := range s.w {
		s.w[i].sgl = sges[i*c.MaxSendSGE : i*c.MaxSendSGE : (i+1)*c.MaxSendSGE]
	}
	s.inline = make([]byte, n*c.MaxInline)
	s.maxInline = c.MaxInline
	s.cap = uint64(c.MaxSendWR)
	s.sendMSN, s.readMSN = 1, 1
	s.depth = uint64(c.ReadDepth)
}

func (s *sendQueue) at(pos uint64) *sendWR { return &s.w[pos&uint64(len(s.w)-1)] }

// inlineOf is the inline storage of a slot.
func (s *sendQueue) inlineOf(pos uint64) []byte {
	i := int(pos&uint64(len(s.w)-1)) * s.maxInline
	return s.inline[i : i+s.maxInline : i+s.maxInline]
}

var (
	errSQFull = fmt.Errorf("soft: send queue full: %w", unix.ENOMEM)
	errInline = fmt.Errorf("soft: inline data above the granted size: %w", unix.EINVAL)
	errKey    = fmt.Errorf("soft: inline data needs a valid key and bounds: %w", unix.EINVAL)
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wr []verbs.SendWR) (int, error) {
	if q.destroyed || !q.linked && q.state != verbs.QPErr {
		return 0, fmt.Errorf("soft: PostSend in state %d, before Connect or Accept: %w", q.state, unix.EINVAL)
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
	case q.state == verbs.QPErr:
		q.flushSends(q.sq.done, verbs.WCWRFlushErr)
	case q.state == verbs.QPRTS:
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
	w := s.at(s.tail)
	if len(wr.SGL) > cap(w.sgl) {
		return fmt.Errorf("soft: %d SGEs, limit %d: %w", len(wr.SGL), cap(w.sgl), unix.EINVAL)
	}
	switch wr.Op {
	case verbs.OpSend, verbs.OpRDMAWrite:
	case verbs.OpRDMARead:
		if s.depth == 0 {
			return fmt.Errorf("soft: READ on a queue pair with read depth 0: %w", unix.EINVAL)
		}
		if wr.Flags&verbs.SendInline != 0 {
			return fmt.Errorf("soft: inline READ: %w", unix.EINVAL)
		}
	default:
		return badOpcode(wr.Op)
	}
	var total uint64
	for i := range wr.SGL {
		if wr.SGL[i].Length == 0 {
			return errZeroSGE
		}
		total += uint64(wr.SGL[i].Length)
	}
	sgl := w.sgl[:0]
	if wr.Flags&verbs.SendInline != 0 {
		if err := q.copyInline(wr.SGL, total); err != nil {
			return err
		}
	} else {
		sgl = append(sgl, wr.SGL...)
	}
	*w = sendWR{wrid: wr.WRID, raddr: wr.RemoteAddr, rkey: wr.RKey, length: total, op: wr.Op, flags: wr.Flags, sgl: sgl}
	s.tail++
	return nil
}

// copyInline copies the data of an inline request into the slot's storage. The
// data still has to be addressed through a region, for there is no other way
// to name memory.
func (q *qp) copyInline(sgl []verbs.SGE, total uint64) error {
	if total > uint64(q.sq.maxInline) {
		return errInline
	}
	ps, ok := q.resolve(sgl, q.pd, 0, total, 0)
	if !ok {
		return errKey
	}
	b := q.sq.inlineOf(q.sq.tail)
	for _, p := range ps {
		b = b[copy(b, p.mem):]
	}
	return nil
}

func badOpcode(op verbs.Opcode) error {
	name := map[verbs.Opcode]string{
		verbs.OpRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM", verbs.OpSendWithImm: "SEND_WITH_IMM",
		verbs.OpAtomicCmpAndSwp: "ATOMIC_CMP_AND_SWP", verbs.OpAtomicFetchAdd: "ATOMIC_FETCH_AND_ADD",
		verbs.OpLocalInv: "LOCAL_INV", verbs.OpBindMW: "BIND_MW", verbs.OpSendWithInv: "SEND_WITH_INV",
	}[op]
	if name == "" {
		return fmt.Errorf("soft: unknown opcode %d: %w", op, unix.EINVAL)
	}
	return fmt.Errorf("soft: %s is %w: %w", name, errUnsupported, unix.EINVAL)
}

// completeDone completes, in order, what is done and posted before pos.
func (q *qp) completeDone(pos uint64) {
	s := &q.sq
	for ; s.done < pos; s.done++ {
		w := s.at(s.done)
		if !w.made || w.end > q.out.written || w.op == verbs.OpRDMARead && !w.done {
			return
		}
		if w.flags&verbs.SendSignaled != 0 {
			q.completeSend(s.done, w, verbs.WCSuccess)
		}
	}
}

// completeSends completes what is done, and carries out what waited for it: a
// local failure, for which everything before it must be complete, or the
// orderly close.
func (q *qp) completeSends() {
	s := &q.sq
	q.completeDone(s.tail)
	if s.done < s.tail && s.at(s.done).status != 0 {
		q.fail(&fault{code: iwarp.TermLocal, term: true, named: true, pos: s.done, sq: s.at(s.done).status, err: errLocal})
	} else if q.closing && s.done == q.closeAt && q.serve.empty() && q.out.pending == 0 {
		q.fail(&fault{err: errDisconnected})
	}
}
