package engine

import (
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/verbs"
)

const (
	mostClients = 1 << 20 // in a state
	mostSocks   = 1 << 24
)

// Inherit gives a new client the send windows of the process that it is a record of. Adopt
// registers them.
func (c *Client) Inherit(windows ...[]byte) {
	for _, mem := range windows {
		c.send = append(c.send, window{mem: mem})
	}
}

// encodeClients writes the processes, with their rings and buffers.
func (h *handing) encodeClients() {
	w := h.w
	w.Begin(handover.TagClients)
	w.Count(len(h.procs.all))
	for _, c := range h.procs.all {
		w.U32(h.name(c))
		w.State().Alone(handover.TagClient, h.name(c), func() { h.encodeClient(c) })
	}
	w.End()
}

func (h *handing) encodeClient(c *Client) {
	w := h.w
	w.Int(len(c.send))
	c.seg.HandOverRings(w.State())
	w.Size(len(c.socks))
	w.Count(len(c.sockFree))
	for _, handle := range c.sockFree {
		if mutant.On(mutant.HandoverHandles) {
			handle = shm.SockIndex(handle)
		}
		w.U32(handle)
	}
	w.Begin(handover.TagBuffers)
	w.U32(c.nextBuf)
	w.Count(len(c.buffers))
	for _, b := range c.sortedBuffers() {
		w.U32(b.id)
		w.U64(uint64(len(b.mem)))
		w.Bool(b.freeing && !mutant.On(mutant.HandoverFreeing))
		w.Bool(b.waiting != nil)
	}
	w.End()
}

func (t *taking) adoptClients() {
	r := t.r
	r.Begin(handover.TagClients)
	for range r.Count(mostClients, 4+8) {
		t.part(nil)
		name := r.U32()
		if r.Err() != nil {
			return
		}
		c := t.heir.Client(name)
		if c == nil || c.acct != nil {
			r.Fail("client %d is not there, or twice", name)
			return
		}
		t.clients.all = append(t.clients.all, c)
		t.procs = append(t.procs, c)
		t.names[c] = name
		r.Alone(handover.TagClient, name, func() { t.adoptClient(c, name) })
	}
	r.End()
}

func (t *taking) adoptClient(c *Client, name uint32) {
	r := t.r
	if n := r.Int(maxWindows); n != len(c.send) {
		r.Fail("client %d with %d send windows, mapped are %d", name, n, len(c.send))
	}
	if err := failpoint.Hit(failpoint.Process); err != nil {
		r.Fail("%v", err)
	}
	t.enter(c)
	c.seg.HandOverRings(r.State())
	t.st.C[stats.SharedBytes] += c.shared
	c.socks = make([]*socket, r.Size(shm.MaxSocks))
	seen := map[uint32]bool{}
	for range r.Count(len(c.socks), 4) {
		handle := r.U32()
		if i := shm.SockIndex(handle); i >= uint32(len(c.socks)) || seen[i] {
			r.Fail("a free socket index %d of %d", i, len(c.socks))
		} else {
			seen[i] = true
		}
		c.sockFree = append(c.sockFree, handle)
	}
	t.adoptBuffers(c, name)
}

func (t *taking) adoptBuffers(c *Client, name uint32) {
	r := t.r
	r.Begin(handover.TagBuffers)
	c.nextBuf = r.U32()
	for range r.Count(MaxBuffers, 4+8+1+1) {
		b := &buffer{id: r.U32(), cl: c}
		size, waits := r.U64(), false
		b.freeing, waits = r.Bool(), r.Bool()
		if r.Err() != nil {
			return
		}
		if b.id == 0 || c.buffers[b.id] != nil || waits && !b.freeing {
			r.Fail("buffer %d of client %d is there twice, or is waited for and not freed", b.id, name)
			return
		}
		if b.mem, b.onFree = t.heir.Buffer(name, b.id); b.mem == nil || uint64(len(b.mem)) != size {
			r.Fail("buffer %d of client %d has %d bytes, mapped are %d", b.id, name, size, len(b.mem))
			return
		}
		if waits {
			b.waiting = t.later(c, Awaited{Number: b.id})
		}
		c.buffers[b.id] = b
		c.refs++
		t.st.C[stats.RegisteredBytes] += size
	}
	r.End()
}

// register registers what clients have. Regions come first, because they have to have their
// keys again.
func (t *taking) register() {
	for _, c := range t.procs {
		for i := range c.send {
			mr, err := t.regMR(failpoint.RegisterWindow, c.send[i].mem, uint64(i)*shm.WindowSize, 0)
			if err != nil {
				t.r.Fail("register send window: %v", err)
				return
			}
			c.send[i].mr = mr
		}
		for _, b := range c.sortedBuffers() {
			mr, err := t.regMR(failpoint.RegisterBuffer, b.mem, 0, verbs.AccessLocalWrite)
			if err != nil {
				t.r.Fail("register buffer: %v", err)
				return
			}
			b.mr = mr
		}
	}
}

// What a socket's record says of it.
const (
	sockClosed = 1 << iota
	sockLeft
	sockLaned
	sockCongested
	sockOverrun
	sockSends // has sent something
	sockRefused

	sockAll = 1<<iota - 1
)

func (h *handing) encodeSockets() {
	w := h.w
	w.Begin(handover.TagSockets)
	w.Count(len(h.socks.all))
	for _, s := range h.socks.all {
		lane := s.lane
		if mutant.On(mutant.HandoverLane) {
			lane = 0
		}
		w.U32(h.procs.number(s.cl))
		w.U32(s.handle)
		w.Addr(s.local.addr)
		w.U16(s.port)
		w.U32(s.inc)
		w.U8(lane)
		w.Flags(s.closed, s.left, s.laned, s.congested && !mutant.On(mutant.HandoverCongested), s.overrun, s.took != nil, s.forMemory.On())
		w.Int(s.limit)
		w.I64(int64(s.congAt))
		w.U64s(s.sent.msgs, s.sent.bytes, s.got.msgs, s.got.bytes)
		w.Int(s.counted)
		w.Int(s.before)
		w.I64(s.countAt)
		if s.took != nil {
			encodeTimes(w, s.took)
		}
	}
	w.End()
}

const mostInt = 1<<63 - 1

// localOf reads an address of this host. Sockets and what peers know keep an address in use.
func (e *Engine) localOf(r *handover.Reader) *localAddr {
	addr := r.Addr()
	l := e.addrs.by[addr]
	if l == nil && r.Err() == nil {
		r.Fail("%v is in use, and the setting listen does not name it: name it, or restart the daemon instead", addr)
	}
	return l
}

func (t *taking) adoptSockets() {
	r := t.r
	r.Begin(handover.TagSockets)
	for range r.Count(mostSocks, 4+4+4+2+4+1+2) {
		t.part(nil)
		s := &socket{cl: at(r, t.procs, r.U32(), "client"), handle: r.U32()}
		s.local = t.localOf(r) // an address that the settings do not name is no fault of the process
		t.part(s.cl)
		s.port, s.inc, s.lane = r.U16(), r.U32(), r.U8()
		f := r.U16()
		s.closed, s.left, s.laned, s.overrun = f&sockClosed != 0, f&sockLeft != 0, f&sockLaned != 0, f&sockOverrun != 0
		s.limit, s.congAt = r.Int(mostInt), Wall(r.I64())
		s.sent, s.got = total{r.U64(), r.U64()}, total{r.U64(), r.U64()}
		s.counted, s.before, s.countAt = r.Int(mostInt), r.Int(mostInt), r.I64()
		if f&sockSends != 0 {
			s.took = new(times)
			adoptTimes(r, s.took)
		}
		if r.Err() != nil {
			return
		}
		if s.port == 0 || s.inc == 0 || f&^sockAll != 0 || s.lane != 0 && !s.laned {
			r.Fail("a socket at port %d, with incarnation %d and flags %#x", s.port, s.inc, f)
			return
		}
		t.socks = append(t.socks, s)
		if !s.closed {
			t.bindAgain(s, f)
		}
	}
	for _, c := range t.procs {
		t.part(c)
		free := map[uint32]bool{}
		for _, handle := range c.sockFree {
			free[shm.SockIndex(handle)] = true
		}
		for i, s := range c.socks {
			if (s == nil) != free[uint32(i)] {
				r.Fail("socket index %d of client %d is lost, or free and in use", i, t.names[c])
			}
		}
		if r.Err() != nil {
			return
		}
	}
	t.part(nil)
	r.End()
}

// bindAgain puts s where clients and peers find it.
func (t *taking) bindAgain(s *socket, f uint16) {
	i := shm.SockIndex(s.handle)
	switch {
	case i >= uint32(len(s.cl.socks)) || s.cl.socks[i] != nil:
		t.r.Fail("socket index %d is none, or is used twice", i)
		return
	case s.left && f&(sockCongested|sockRefused) != 0:
		t.r.Fail("a socket that has left its port has flags %#x", f)
		return
	case !s.left && s.local.ports.get(s.port) != nil:
		t.r.Fail("port %d of %v is bound twice", s.port, s.local.addr)
		return
	}
	s.cl.socks[i] = s
	s.cl.acct.sockets++
	if s.left {
		return
	}
	s.local.ports.set(s.port, s)
	t.listSocket(s)
	if f&sockCongested != 0 {
		s.congested = true
		s.local.cong.Set(s.port)
		t.st.C[stats.CongestedPorts]++
	}
	if f&sockRefused != 0 && !mutant.On(mutant.HandoverRefused) {
		acc := s.cl.acct
		acc.refused.Add(&s.forMemory, s)
		if !acc.inShort.On() {
			t.overflow.short.Add(&acc.inShort, acc)
		}
		t.overflow.released = true
	}
}
