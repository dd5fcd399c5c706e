package conn

import "github.com/rdsd/rdsd/conn/wire"

const (
	maxPieces = 64        // of one write
	tcpCopy   = 16 << 10  // a longer payload is written from where it lies
	tcpBudget = 256 << 10 // bytes of a lane in one Flush
)

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
		l.blocked = n < want
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
	if m := l.frag; m != nil {
		rest := wire.HeaderLen + len(m.Data) - l.fragOff
		if l.fragOff < wire.HeaderLen {
			at += copy(buf, l.fragHdr[l.fragOff:])
			payload(m.Data)
		} else {
			payload(m.Data[l.fragOff-wire.HeaderLen:])
		}
		sum += rest
	}
	if l.congRest != nil {
		at += copy(buf[at:], l.congRest)
		sum += len(l.congRest)
	} else if l.congDirty {
		h := wire.Header{Flags: wire.FlagCong, Len: wire.CongLen}
		h.PutTCP(buf[at:])
		c.congMap.Put(buf[at+wire.HeaderLen:])
		at += wire.HeaderLen + wire.CongLen
		sum += wire.HeaderLen + wire.CongLen
	}
	if l.n > 0 && l.waits() {
		put(nil)
		return sum
	}
	for m := l.queue.head; m != nil && sum < budget && len(c.pieces) < maxPieces-2; m = m.priv.next {
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
	if m := l.frag; m != nil {
		rest := wire.HeaderLen + len(m.Data) - l.fragOff
		if n < rest {
			l.fragOff += n
			l.written += uint64(n)
			return
		}
		n -= rest
		l.written += uint64(rest)
		l.frag = nil
		l.wrote(m)
	}
	if k := len(l.congRest); k > 0 {
		k = min(k, n)
		n -= k
		l.written += uint64(k)
		if l.congRest = l.congRest[k:]; len(l.congRest) > 0 {
			return
		}
		l.congRest = nil
	} else if l.congDirty && n > 0 {
		k := min(n, wire.HeaderLen+wire.CongLen)
		l.congDirty = false
		if k < wire.HeaderLen+wire.CongLen {
			l.keepCong(k)
		}
		n -= k
		l.written += uint64(k)
	}
	for n > 0 {
		m := l.queue.head
		l.queue.remove(m)
		m.priv.state, m.priv.posted = msgPosted, true
		if m.priv.flags&wire.FlagRetransmitted != 0 {
			c.stats.Retransmitted++
		}
		k := min(n, wire.HeaderLen+len(m.Data))
		n -= k
		l.written += uint64(k)
		if k < wire.HeaderLen+len(m.Data) {
			l.frag, l.fragOff = m, k
			l.putHeader(l.fragHdr[:], m)
			return
		}
		l.wrote(m)
	}
}

// keepCong keeps what is left of a congestion frame of which k bytes were taken:
// the map may change before the rest goes.
func (l *tcpLane) keepCong(k int) {
	if l.congBuf == nil {
		l.congBuf = make([]byte, wire.HeaderLen+wire.CongLen)
	}
	h := wire.Header{Flags: wire.FlagCong, Len: wire.CongLen}
	h.PutTCP(l.congBuf)
	l.c.congMap.Put(l.congBuf[wire.HeaderLen:])
	l.congRest = l.congBuf[k:]
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
	m.priv.end = l.written
	l.unacked.push(m)
}

// HandleRoom tells the TCP that a lane's stream takes bytes again.
func (c *TCP) HandleRoom(now int64, lane int) {
	c.calls.called(callDrive)
	c.now = now
	c.lanes[lane].blocked = false
}
