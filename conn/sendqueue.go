package conn

import (
	"math/bits"

	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/rdmaop"
)

// sendRec is what a posted SEND keeps until it completes.
type sendRec struct {
	buf   *SendBuf // goes back to the pool
	large *msg.Msg // its Data is part of the SEND
	ops   *msg.Msg // first of the chain of operations posted ahead of it
	wrs   int      // work requests, operations' included
	reads int      // READs and atomics of them
	bytes uint64   // that its operations move
	ctl   bool     // it has the oldest part of the control buffer
}

const (
	// CtlLen is the length of a connection's control buffer.
	CtlLen = 32 * ctlPartLen

	// ctlPartLen is the part of the control buffer that a SEND may have: for the
	// header of a payload that is sent from its place with what follows it, for an ack or HELLO.
	ctlPartLen = wire.HeaderLen + wire.AtomicLen + wire.TraceparentRoom

	// A connection has records for firstRecs SENDs, and for more, up to
	// mostRecs, when it had so many on their way.
	firstRecs = 8
	mostRecs  = 256
)

// sendQueue is what was posted on the queue pair and has not completed.
type sendQueue struct {
	recs    []sendRec // ring: one per SEND; grows with what is outstanding
	maxRecs int
	head    uint64 // number of the oldest record
	tail    uint64 // of the next one
	lost    uint64 // records from here on have no completion to come; 0 = none
	size    int    // work requests that fit
	used    int
	reads   int    // READs and atomics outstanding
	opBytes uint64 // of all operations outstanding
}

// A SEND's WRID is the number of its record. The WRID of an operation's work
// request names the record of the SEND behind it and the operation.
const (
	// HostWRID is the bit of a work request id that no send request of a Conn
	// has: a host may mark its receives with it.
	HostWRID = 1 << 62

	wridOp      = 1 << 63
	wridOp2     = 1 << 61 // with wridOp: the message's second operation
	wridOpShift = 40      // position of the operation in its chain
	wridRec     = 1<<wridOpShift - 1
)

// open is for a fresh queue pair that takes size work requests.
func (q *sendQueue) open(size int) {
	*q = sendQueue{size: max(size, 1)}
	q.maxRecs = pow2(min(q.size, mostRecs))
	q.recs = make([]sendRec, min(firstRecs, q.maxRecs))
}

// pow2 is the largest power of two that is not above n, which is positive.
func pow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// room says how many work requests may still be posted; the last of them must
// be a SEND.
func (q *sendQueue) room() int {
	if q.tail-q.head == uint64(q.maxRecs) {
		return 0
	}
	return q.size - q.used
}

// at is record number n, which is outstanding.
func (q *sendQueue) at(n uint64) *sendRec { return &q.recs[n%uint64(len(q.recs))] }

// add notes that rec was posted.
func (q *sendQueue) add(rec *sendRec) {
	if q.tail-q.head == uint64(len(q.recs)) {
		q.grow()
	}
	*q.at(q.tail) = *rec
	q.used += rec.wrs
	q.reads += rec.reads
	q.opBytes += rec.bytes
	q.tail++
}

// grow doubles the ring of records.
func (q *sendQueue) grow() {
	recs := make([]sendRec, 2*len(q.recs))
	for r := q.head; r != q.tail; r++ {
		recs[r%uint64(len(recs))] = *q.at(r)
	}
	q.recs = recs
}

// retire takes the oldest record.
func (q *sendQueue) retire() sendRec {
	r := q.at(q.head)
	rec := *r
	*r = sendRec{}
	q.head++
	q.used -= rec.wrs
	q.reads -= rec.reads
	q.opBytes -= rec.bytes
	return rec
}

// emptied says that every record that will complete has completed. The one
// whose post failed without a marker ends with the queue pair.
func (q *sendQueue) emptied() bool {
	if q.lost != 0 {
		return q.head >= q.lost-1
	}
	return q.head == q.tail
}

// opOf returns the operation a work request belonged to, and its message; nil if
// it was a SEND. kernel: the peer is one.
func (q *sendQueue) opOf(wrid uint64, kernel bool) (*msg.Msg, *rdmaop.Op) {
	r := wrid & wridRec
	if r < q.head || r >= q.tail {
		return nil, nil
	}
	m := q.at(r).ops
	if wrid&wridOp == 0 {
		if kernel {
			return bareOp(m)
		}
		return nil, nil
	}
	for i := wrid &^ (wridOp | wridOp2) >> wridOpShift; i > 0 && m != nil; i-- {
		m = m.Track.Chain
	}
	switch {
	case m == nil:
		return nil, nil
	case wrid&wridOp2 != 0:
		return m, m.Op2
	}
	return m, m.Op
}

// bareOp returns the last operation of a chain without a SEND behind it: the
// record's request is its. A kernel peer is told nothing of silent ones.
func bareOp(m *msg.Msg) (*msg.Msg, *rdmaop.Op) {
	for m != nil && m.Silent {
		if m.Track.Chain != nil {
			m = m.Track.Chain
			continue
		}
		if m.Op2 != nil {
			return m, m.Op2
		}
		return m, m.Op
	}
	return nil, nil
}
