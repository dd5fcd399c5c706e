package engine

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
)

// encodeArrived writes the messages that clients have and have not given back, and those
// that wait in overflow. The payload of the latter is part of the state: it is no more than
// Config.OverflowBytes, and the state as a whole travels in a memory file.
func (h *handing) encodeArrived() {
	w := h.w
	w.Begin(handover.TagArrived)
	for _, c := range h.procs.all {
		w.Count(len(c.rx) - len(c.rxFree))
		for id := range c.rx {
			r := &c.rx[id]
			if r.sock == nil {
				continue
			}
			w.U32(uint32(id))
			w.U32(h.socks.number(r.sock))
			w.U32(r.chunk)
			w.U32(r.n)
			w.Bool(r.told)
			if r.told {
				h.encodeTold(r)
			}
		}
	}
	for _, s := range h.socks.all {
		n := s.over.N
		if mutant.On(mutant.HandoverOver) {
			n = 0
		}
		w.Count(n)
		for at := s.over.Head; at != nil && n > 0; at = at.Next {
			h.encodeOver(at.Of)
		}
	}
	w.End()
}

func (h *handing) encodeTold(r *rxEntry) {
	steps := r.steps
	if mutant.On(mutant.HandoverSteps) {
		steps = 0
	}
	h.source(r.src)
	h.w.U16(r.sport)
	h.w.U32(r.at)
	h.w.Int(r.run)
	h.w.Int(steps)
	h.encodeSum(&r.sum)
}

func (h *handing) encodeSum(s *frames.Sum) {
	h.w.Int(s.Datagrams)
	h.w.Int(s.NonEmpty)
	h.w.Int(s.Bytes)
}

func (t *taking) adoptSum() (s frames.Sum) {
	s.Datagrams, s.NonEmpty, s.Bytes = t.r.Int(frames.MaxLen), t.r.Int(frames.MaxLen), t.r.Int(abi.MaxMessage)
	if s.NonEmpty > s.Datagrams {
		t.r.Fail("%d datagrams, of which %d are not empty", s.Datagrams, s.NonEmpty)
	}
	return s
}

func (h *handing) encodeOver(m *rxMsg) {
	w := h.w
	h.source(m.src)
	w.U16(m.sport)
	w.U32(m.srcInc)
	w.U64(m.cookie)
	w.I64(m.began)
	w.I64(int64(m.at))
	w.U32(m.asm)
	w.Int(m.run)
	h.encodeSum(&m.sum)
	w.Bool(m.inOver)
	if m.inOver {
		w.Blob(m.mem())
	} else {
		w.U32(m.rxid)
	}
}

func (t *taking) adoptArrived() {
	r := t.r
	r.Begin(handover.TagArrived)
	for _, c := range t.procs {
		t.part(c)
		for range r.Count(len(c.rx), 4+4+4+4+1) {
			if !t.adoptRx(c) {
				return
			}
		}
		c.recv.Retaken()
		c.rxFree = c.rxFree[:0]
		for id := len(c.rx) - 1; id >= 0; id-- {
			if c.rx[id].sock == nil {
				c.rxFree = append(c.rxFree, uint32(id))
			}
		}
	}
	for _, s := range t.socks {
		t.part(s.cl)
		for range r.Count(mostMsgs, 16+2+4+8+8+8+4+8+24+1) {
			if t.adoptOver(s); r.Err() != nil {
				return
			}
		}
	}
	for _, c := range t.procs {
		if n := t.untold[c]; n != 0 {
			t.part(c)
			r.Fail("client %d has %d messages that nobody tells it of", t.names[c], n)
			return
		}
	}
	t.part(nil)
	r.End()
}

// adoptRx reads a message in c's receive arena.
func (t *taking) adoptRx(c *Client) bool {
	r := t.r
	id, s, chunk, n, told := r.U32(), at(r, t.socks, r.U32(), "socket"), r.U32(), r.U32(), r.Bool()
	if r.Err() != nil {
		return false
	}
	if id >= uint32(len(c.rx)) || c.rx[id].sock != nil || s.cl != c || s.closed && !told {
		r.Fail("receive id %d of client %d is none, or is used twice", id, t.names[c])
		return false
	}
	if n > 0 {
		if err := c.recv.Retake(chunk, int(n)); err != nil {
			r.Fail("%v", err)
			return false
		}
	}
	x := &c.rx[id]
	*x = rxEntry{sock: s, chunk: chunk, n: n, told: told}
	s.rxIDs++
	s.rxMem += shm.ChunkSize(int(n))
	if !told {
		t.untold[c]++
		return true
	}
	s.rxTold++
	x.src = t.source()
	x.sport, x.at, x.run, x.steps, x.sum = r.U16(), r.U32(), r.Int(frames.MaxLen), r.Int(shm.RunSteps-1), t.adoptSum()
	if r.Err() == nil && (uint32(x.sum.Bytes) > n || x.run == 0 && x.steps > 0 || x.sum.Datagrams > max(x.run, 1)) {
		r.Fail("receive id %d of client %d has %d bytes in %d, a run of %d", id, t.names[c], x.sum.Bytes, n, x.run)
	}
	if !s.closed {
		s.rcvBytes += x.sum.Bytes
		s.rcvMsgs += x.sum.NonEmpty
	}
	return r.Err() == nil
}

// adoptOver reads a message that waits at s.
func (t *taking) adoptOver(s *socket) {
	r := t.r
	a := arrival{src: t.source(), sport: r.U16(), srcInc: r.U32(), cookie: r.U64()}
	began := r.I64()
	a.at, a.asm, a.run, a.sum = Wall(r.I64()), r.U32(), r.Int(frames.MaxLen), t.adoptSum()
	var m *rxMsg
	if r.Bool() {
		m = t.overAgain(s, &a, r.Blob(abi.MaxMessage))
	} else {
		m = t.inArenaAgain(s, &a, r.U32())
	}
	if r.Err() != nil {
		return
	}
	if s.closed || a.sum.Bytes > a.n || a.sum.Datagrams != max(a.run, 1) {
		r.Fail("%d bytes in %d wait at a socket, a run of %d", a.sum.Bytes, a.n, a.run)
		return
	}
	m.began, m.asm, m.sum = began, a.asm, a.sum
	s.rcvBytes += a.sum.Bytes
	s.rcvMsgs += a.sum.NonEmpty
	s.countOver(m, 1)
	s.over.Add(&m.waits, m)
}

// overAgain takes daemon memory for a message of s as it had some. Windows are given out
// anew, so limits among users are those that the next message finds.
func (t *taking) overAgain(s *socket, a *arrival, payload []byte) *rxMsg {
	acc, o := s.cl.acct, &t.overflow
	m := &rxMsg{sock: s, src: a.src, sport: a.sport, srcInc: a.srcInc, cookie: a.cookie, n: uint32(len(payload)), run: a.run, inOver: true, at: a.at}
	a.n = len(payload)
	if cost := a.n + overCost; t.r.Err() == nil && o.used > 0 && o.used+cost > t.cfg.OverflowBytes {
		t.part(nil) // the settings may allow less
		t.r.Fail("%d bytes of overflow, at most %d are allowed", o.used+cost, t.cfg.OverflowBytes)
	}
	if t.r.Err() != nil {
		return m
	}
	for i := 0; a.n > 0 && m.over == nil; i++ {
		if i == len(acc.windows) {
			last := len(o.free) - 1
			if last < 0 {
				t.part(nil)
				t.r.Fail("the overflow's windows are full")
				return m
			}
			acc.windows = append(acc.windows, o.free[last])
			o.free = o.free[:last]
		}
		if chunk, ok := acc.windows[i].Alloc(a.n); ok {
			m.over, m.chunk = acc.windows[i], chunk
		}
	}
	acc.overBytes += a.n + overCost
	o.used += a.n + overCost
	x := t.pools.rxs.Get()
	*x = *m
	copy(x.mem(), payload)
	return x
}

// inArenaAgain finds the message of a receive id that its client has not been told of.
func (t *taking) inArenaAgain(s *socket, a *arrival, id uint32) *rxMsg {
	c := s.cl
	if t.r.Err() == nil && (id >= uint32(len(c.rx)) || c.rx[id].sock != s || c.rx[id].told || t.used[&c.rx[id]]) {
		t.r.Fail("receive id %d is none that waits, or is used twice", id)
	}
	if t.r.Err() != nil {
		return nil
	}
	e := &c.rx[id]
	if t.used == nil {
		t.used = map[*rxEntry]bool{}
	}
	t.used[e] = true
	t.untold[c]--
	a.n = int(e.n)
	m := t.pools.rxs.Get()
	*m = rxMsg{sock: s, src: a.src, sport: a.sport, srcInc: a.srcInc, cookie: a.cookie, n: e.n, run: a.run, chunk: e.chunk, rxid: id, at: a.at}
	return m
}
