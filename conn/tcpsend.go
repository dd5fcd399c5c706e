package conn

import "github.com/rdsd/rdsd/conn/wire"

const (
	maxPieces = 64        // of one write
	tcpCopy   = 16 << 10  // a longer payload is written from where it lies
	tcpBudget = 256 << 10 // bytes of a lane in one Flush
)

// tcpOut is the sending side of a lane.
type tcpOut struct {
	nextTx  uint64
	lastAck uint64
	queue   msgList
	unacked msgList
	written uint64 // bytes the stream has taken
	blocked bool   // until HandleRoom

	frag    *Msg // half written
	fragOff int  // bytes of it written, header included
	fragHdr [wire.HeaderLen]byte

	congDue  bool   // the map is to be sent
	congRest []byte // of a congestion frame half written
	congBuf  []byte
}

// write writes until there is nothing, no room, or the bound is reached.
func (l *tcpLane) write() {
	for sum := 0; sum < tcpBudget && l.needFlush(); {
		want := l.gather(tcpBudget - sum)
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
func (l *tcpLane) gather(budget int) (sum int) {
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
		if len(b) <= tcpCopy {
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
	for m := l.cut(l.out.queue.head); m != nil && sum < budget && len(c.pieces) < maxPieces-2; m = l.cut(m.priv.next) {
		need := wire.HeaderLen
		if len(m.Data) <= tcpCopy {
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
func (l *tcpLane) cut(m *Msg) *Msg {
	if m == nil || m.Run == 0 {
		return m
	}
	p := l.c.cuts.next(&l.out.queue, m)
	if p != nil {
		p.priv.seq = m.priv.seq
		m.priv.seq++
	}
	return p
}

// mustNotCut says that what is next is a datagram of a run that has to wait.
func (l *tcpLane) mustNotCut() bool {
	return l.out.queue.head.Run != 0 && l.c.cuts.full()
}

func (l *tcpLane) putHeader(b []byte, m *Msg) {
	h := wire.Header{Seq: m.priv.seq, Len: uint32(len(m.Data)), SPort: m.SPort, DPort: m.DPort, Flags: m.priv.flags}
	if m.priv.own && (h.IsProbe() || h.IsProbeAnswer()) {
		h.SetHandshake(wire.Handshake{Paths: uint16(l.c.cfg.Lanes), BySPort: l.c.chosen})
	}
	h.PutTCP(b)
}

// account notes that the first n bytes of what gather put together were taken.
func (l *tcpLane) account(n int) {
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
		m := l.out.queue.head
		l.out.queue.remove(m)
		m.priv.state, m.priv.posted = msgPosted, true
		l.posted(m)
		if m.priv.flags&wire.FlagRetransmitted != 0 {
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
func (l *tcpLane) posted(m *Msg) {
	again := false
	if m.isPart() {
		m = m.priv.cut.run
		again, m.priv.posted = m.priv.posted, true
	}
	if m.Watched && !again {
		l.c.cfg.Posted(m)
	}
}

// keepCong keeps what is left of a congestion frame of which k bytes were taken:
// the map may change before the rest goes.
func (l *tcpLane) keepCong(k int) {
	if l.out.congBuf == nil {
		l.out.congBuf = make([]byte, wire.HeaderLen+wire.CongLen)
	}
	h := wire.Header{Flags: wire.FlagCong, Len: wire.CongLen}
	h.PutTCP(l.out.congBuf)
	l.c.cong.own.Put(l.out.congBuf[wire.HeaderLen:])
	l.out.congRest = l.out.congBuf[k:]
}

// wrote notes that m was taken whole.
func (l *tcpLane) wrote(m *Msg) {
	c := l.c
	c.stats.SendMsgs++
	c.stats.SendBytes += uint64(len(m.Data))
	if m.priv.state == msgEnding {
		c.finish(m, m.priv.outcome)
		return
	}
	m.priv.end = l.out.written
	l.out.unacked.push(m)
}

// HandleRoom tells the TCP that a lane's stream takes bytes again.
func (c *TCP) HandleRoom(now int64, lane int) {
	c.calls.called(callDrive)
	c.now = now
	c.lanes[lane].out.blocked = false
}
