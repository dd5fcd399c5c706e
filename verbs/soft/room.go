package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// A SEND longer than the peer can put aside would stop the stream where no
// receive waits for it, and with the stream the answers that the peer's own
// requests need. So with AckRemote and a peer of our kind such a SEND pauses at
// that length behind a zero-length READ, which the peer answers when the
// message has its receive. Meanwhile READ responses go on: a tagged message may
// come between the segments of an untagged one.
type roomState uint8

const (
	roomUnknown roomState = iota
	roomAsked
	roomGranted // the peer has a receive for the SEND under way
)

// pauses reports whether the SEND w stops before its next n bytes to ask the peer
// first.
func (q *qp) pauses(w *sendWR, n uint64) bool {
	s := &q.sq
	most := uint64(q.peer.ParkKiB) << 10
	if w.length <= most || w.off+n <= most || q.attr.Ack == verbs.AckLocal || !q.known || s.room == roomGranted {
		return false
	}
	if s.room == roomUnknown && !s.waits.full() && q.emitFence() {
		s.room = roomAsked
		s.issued(wait{pos: s.gen, kind: waitRoom})
	}
	return true
}

// emitFence makes a Read Request of no bytes.
func (q *qp) emitFence() bool {
	s := &q.sq
	h := q.dev.io.hdr[:iwarp.UntaggedLen+iwarp.ReadReqLen]
	iwarp.PutUntagged(h, iwarp.OpReadRequest, true, iwarp.ReadReqLen, 0, iwarp.QNRead, s.readMSN, 0)
	r := iwarp.ReadRequest{SinkSTag: sinkSTag(s.readMSN), SrcSTag: 1}
	r.Put(h[iwarp.UntaggedLen:])
	if !q.emit(h, nil, 0) {
		return false
	}
	q.dev.stats.FencesSent++
	return true
}
