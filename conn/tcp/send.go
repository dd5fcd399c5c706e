package tcp

import (
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/conn/wire"
)

const (
	maxPieces   = 64        // of one write
	mostCopied  = 16 << 10  // a longer payload is written from where it lies
	flushBudget = 256 << 10 // bytes of a lane in one Flush
)

// sending is the sending side of a lane.
type sending struct {
	nextTx  uint64
	lastAck uint64
	queue   msg.List
	unacked msg.List
	written uint64 // bytes the stream has taken
	blocked bool   // until HandleRoom

	frag    *msg.Msg // half written
	fragOff int      // bytes of it written, header included
	fragHdr [wire.HeaderLen]byte

	congDue  bool   // the map is to be sent
	congRest []byte // of a congestion frame half written
	congBuf  []byte
}

// write writes until there is nothing, no room, or the bound is reached.
func (l *lane) write() {
	for sum := 0; sum < flushBudget && l.needFlush(); {
		want := l.gather(flushBudget - sum)
		n, err := l.stream.Write(l.c.pieces)
		clear(l.c.pieces)
		if err != nil {
			l.broken(err)
			return
		}
		l.c.stats.SendFrames++
		l.account(n)
		sum += n
		l.out.blocked = n < want
	}
	l.armAck()
}

// gather puts the next frames into c.pieces, up to about budget bytes, and
// returns how many they are. Nothing moves before account knows what was taken.
func (l *lane) gather(budget int) (sum int) {
	c := l.c
	c.pieces = c.pieces[:0]
	buf := c.cfg.Scratch
	at, from := 0, 0 // of buf: in use, and not yet among the pieces
	put := func(piece []byte) {
		if at > from {
			c.pieces = append(c.pieces, buf[from:at])
			from = at
		}
		if len(piece) > 0 {
			c.pieces = append(c.pieces, piece)
		}
	}
	payload := func(b []byte) {
		if len(b) <= mostCopied {
			at += copy(buf[at:], b)
		} else {
			put(b)
		}
	}
	if m := l.out.frag; m != nil {
		rest := wire.HeaderLen + len(m.Data) - l.out.fragOff
		if l.out.fragOff < wire.HeaderLen {
			at += copy(buf, l.out.fragHdr[l.out.fragOff:])
			payload(m.Data)
		} else {
			payload(m.Data[l.out.fragOff-wire.HeaderLen:])
		}
		sum += rest
	}
	if l.out.congRest != nil {
		at += copy(buf[at:], l.out.congRest)
		sum += len(l.out.congRest)
	} else if l.out.congDue {
		h := wire.Header{Flags: wire.FlagCong, Len: wire.CongLen}
		h.PutTCP(buf[at:])
		c.cong.own.Put(buf[at+wire.HeaderLen:])
		at += wire.HeaderLen + wire.CongLen
		sum += wire.HeaderLen + wire.CongLen
	}
	if l.n > 0 && l.waits() {
		put(nil)
		return sum
	}
	for m := l.cut(l.out.queue.Head); m != nil && sum < budget && len(c.pieces) < maxPieces-2; m = l.cut(m.Track.Next) {
		need := wire.HeaderLen
		if len(m.Data) <= mostCopied {
			need += len(m.Data)
		}
		if len(buf)-at < need {
			break
		}
		l.putHeader(buf[at:], m)
		at += wire.HeaderLen
		payload(m.Data)
		sum += wire.HeaderLen + len(m.Data)
	}
	put(nil)
	return sum
}

// cut returns m, a message of the queue or nil, but if m is a run its next datagram; nil
// while there are too many.
func (l *lane) cut(m *msg.Msg) *msg.Msg {
	if m == nil || m.Run == 0 {
		return m
	}
	p := l.c.cuts.Next(&l.out.queue, m)
	if p != nil {
		p.Track.Seq = m.Track.Seq
		m.Track.Seq++
	}
	return p
}

// mustNotCut says that what is next is a datagram of a run that has to wait.
func (l *lane) mustNotCut() bool {
	return l.out.queue.Head.Run != 0 && l.c.cuts.Full()
}

func (l *lane) putHeader(b []byte, m *msg.Msg) {
	h := wire.Header{Seq: m.Track.Seq, Len: uint32(len(m.Data)), SPort: m.SPort, DPort: m.DPort, Flags: m.Track.Flags}
	if m.Track.Own && (h.IsProbe() || h.IsProbeAnswer()) {
		h.SetHandshake(wire.Handshake{Paths: uint16(l.c.cfg.Lanes), BySPort: l.c.chosen})
	}
	h.PutTCP(b)
}

// account notes that the first n bytes of what gather put together were taken.
func (l *lane) account(n int) {
	c := l.c
	if m := l.out.frag; m != nil {
		rest := wire.HeaderLen + len(m.Data) - l.out.fragOff
		if n < rest {
			l.out.fragOff += n
			l.out.written += uint64(n)
			return
		}
		n -= rest
		l.out.written += uint64(rest)
		l.out.frag = nil
		l.wrote(m)
	}
	if k := len(l.out.congRest); k > 0 {
		k = min(k, n)
		n -= k
		l.out.written += uint64(k)
		if l.out.congRest = l.out.congRest[k:]; len(l.out.congRest) > 0 {
			return
		}
		l.out.congRest = nil
	} else if l.out.congDue && n > 0 {
		k := min(n, wire.HeaderLen+wire.CongLen)
		l.out.congDue = false
		if k < wire.HeaderLen+wire.CongLen {
			l.keepCong(k)
		}
		n -= k
		l.out.written += uint64(k)
	}
	for n > 0 {
		m := l.out.queue.Head
		l.out.queue.Remove(m)
		m.Track.State, m.Track.Posted = msg.Posted, true
		l.posted(m)
		if m.Track.Flags&wire.FlagRetransmitted != 0 {
			c.stats.Retransmitted++
		}
		k := min(n, wire.HeaderLen+len(m.Data))
		n -= k
		l.out.written += uint64(k)
		if k < wire.HeaderLen+len(m.Data) {
			l.out.frag, l.out.fragOff = m, k
			l.putHeader(l.out.fragHdr[:], m)
			return
		}
		l.wrote(m)
	}
}

// posted notes for the run of m, if it has one, that it was posted, and tells the host
// if it wants to know.
func (l *lane) posted(m *msg.Msg) {
	again := false
	if m.IsPart() {
		m = m.Track.Cut.Run
		again, m.Track.Posted = m.Track.Posted, true
	}
	if m.Watched && !again {
		l.c.cfg.Posted(m)
	}
}

// keepCong keeps what is left of a congestion frame of which k bytes were taken:
// the map may change before the rest goes.
func (l *lane) keepCong(k int) {
	if l.out.congBuf == nil {
		l.out.congBuf = make([]byte, wire.HeaderLen+wire.CongLen)
	}
	h := wire.Header{Flags: wire.FlagCong, Len: wire.CongLen}
	h.PutTCP(l.out.congBuf)
	l.c.cong.own.Put(l.out.congBuf[wire.HeaderLen:])
	l.out.congRest = l.out.congBuf[k:]
}

// wrote notes that m was taken whole.
func (l *lane) wrote(m *msg.Msg) {
	c := l.c
	c.stats.SendMsgs++
	c.stats.SendBytes += uint64(len(m.Data))
	if m.Track.State == msg.Ending {
		c.finish(m, m.Track.Outcome)
		return
	}
	m.Track.End = l.out.written
	l.out.unacked.Push(m)
}

// HandleRoom tells the Conn that a lane's stream takes bytes again.
func (c *Conn) HandleRoom(now int64, lane int) {
	c.calls.Drive()
	c.now = now
	c.lanes[lane].out.blocked = false
}
