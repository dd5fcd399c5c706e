package engine

import (
	"net/netip"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
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

// handOverClients has the processes go over, with their rings and buffers.
func (x *crossing) handOverClients() {
	s := x.s
	for i := range s.Count(len(x.procs.All), mostClients, 4+8) {
		x.part(nil)
		c, name := handover.Nth(s, x.procs.All, i), uint32(0)
		if !s.Reads() {
			name = c.session
		}
		if s.U32(&name); s.Reads() {
			if c = x.adoptClient(name); c == nil {
				return
			}
		}
		s.Alone(handover.TagClient, name, func() { x.handOverClient(c) })
	}
}

// adoptClient enters a process that was named. It returns nil after an error.
func (x *crossing) adoptClient(name uint32) *Client {
	if x.s.Err() != nil {
		return nil
	}
	c := x.heir.Client(name)
	if c == nil || c.acct != nil {
		x.s.Fail("client %d is not there, or twice", name)
		return nil
	}
	x.clients.all = append(x.clients.all, c)
	x.procs.All = append(x.procs.All, c)
	c.session = name
	return c
}

func (x *crossing) handOverClient(c *Client) {
	s := x.s
	windows := len(c.send)
	if s.Int(&windows, maxWindows); windows != len(c.send) {
		s.Fail("client %d with %d send windows, mapped are %d", c.session, windows, len(c.send))
	}
	if s.Reads() {
		if err := failpoint.Hit(failpoint.Process); err != nil {
			s.Fail("%v", err)
		}
		x.users.enter(c)
	}
	c.seg.HandOverRings(s)
	socks := s.Size(len(c.socks), shm.MaxSocks)
	if s.Reads() {
		x.st.C[stats.SharedBytes] += c.shared
		c.socks = make([]*socket, socks)
	}
	seen := map[uint32]bool{}
	for i := range s.Count(len(c.sockFree), len(c.socks), 4) {
		handle := handover.Nth(s, c.sockFree, i)
		if s.U32(&handle); !s.Reads() {
			continue
		}
		if i := shm.SockIndex(handle); i >= uint32(len(c.socks)) || seen[i] {
			s.Fail("a free socket index %d of %d", i, len(c.socks))
		} else {
			seen[i] = true
		}
		c.sockFree = append(c.sockFree, handle)
	}
	s.Begin(handover.TagBuffers)
	s.U32(&c.nextBuf)
	each(x, c.sortedBuffers(), MaxBuffers, 4+8+1+1, func(b *buffer) { x.handOverBuffer(c, b) })
	s.End()
}

func (x *crossing) handOverBuffer(c *Client, b *buffer) {
	s, size, waits := x.s, uint64(len(b.mem)), b.waiting != nil
	s.U32(&b.id)
	s.U64(&size)
	s.Bool(&b.freeing)
	if s.Bool(&waits); !s.Reads() || s.Err() != nil {
		return
	}
	if b.id == 0 || c.buffers[b.id] != nil || waits && !b.freeing {
		s.Fail("buffer %d of client %d is there twice, or is waited for and not freed", b.id, c.session)
		return
	}
	if b.mem, b.onFree = x.heir.Buffer(c.session, b.id); b.mem == nil || uint64(len(b.mem)) != size {
		s.Fail("buffer %d of client %d has %d bytes, mapped are %d", b.id, c.session, size, len(b.mem))
		return
	}
	if waits {
		b.waiting = x.later(c, Awaited{Number: b.id})
	}
	c.addBuffer(b)
	x.st.C[stats.RegisteredBytes] += size
}

// register registers what clients have. Regions come first, because they have to have their
// keys again.
func (x *crossing) register() {
	for _, c := range x.procs.All {
		for i := range c.send {
			mr, err := x.devices.regMR(failpoint.RegisterWindow, c.send[i].mem, uint64(i)*shm.WindowSize, 0)
			if err != nil {
				x.s.Fail("register send window: %v", err)
				return
			}
			c.send[i].mr = mr
		}
		for _, b := range c.sortedBuffers() {
			mr, err := x.devices.regMR(failpoint.RegisterBuffer, b.mem, 0, verbs.AccessLocalWrite)
			if err != nil {
				x.s.Fail("register buffer: %v", err)
				return
			}
			b.mr = mr
		}
	}
}

const mostInt = 1<<63 - 1

// localOf finds an address of this host. Sockets and what peers know keep an address in use.
func (x *crossing) localOf(addr netip.Addr) *localAddr {
	l := x.addrs.by[addr]
	if l == nil {
		x.s.Fail("%v is in use, and the setting listen does not name it: name it, or restart the daemon instead", addr)
	}
	return l
}

func (x *crossing) handOverSocket(so *socket) {
	s := x.s
	x.part(nil)
	var addr netip.Addr
	congested, sends, refused := so.congested, so.took != nil, so.forMemory.On()
	if !s.Reads() {
		addr = so.local.addr
	}
	x.procs.Ref(s, &so.cl, "client")
	s.U32(&so.handle)
	if s.Addr(&addr); s.Reads() {
		so.local = x.localOf(addr) // an address that the settings do not name is no fault of the process
	}
	x.part(so.cl)
	s.U16(&so.port)
	s.U32(&so.inc)
	s.U8(&so.lane)
	f, known := s.Flags(&so.closed, &so.left, &so.laned, &congested, &so.overrun, &sends, &refused)
	s.Int(&so.limit, mostInt)
	s.I64((*int64)(&so.congAt))
	s.U64s(&so.sent.msgs, &so.sent.bytes, &so.got.msgs, &so.got.bytes)
	s.Int(&so.counted, mostInt)
	s.Int(&so.before, mostInt)
	s.I64(&so.countAt)
	if sends {
		if s.Reads() {
			so.took = new(times)
		}
		so.took.handOver(s)
	}
	if !s.Reads() || s.Err() != nil {
		return
	}
	if so.port == 0 || so.inc == 0 || !known || so.lane != 0 && !so.laned {
		s.Fail("a socket at port %d, with incarnation %d and flags %#x", so.port, so.inc, f)
		return
	}
	x.socks.All = append(x.socks.All, so)
	if !so.closed {
		x.bindAgain(so, congested, refused)
	}
}

// checkSockets checks that each socket index is in use or free.
func (x *crossing) checkSockets() {
	for _, c := range x.procs.All {
		x.part(c)
		free := map[uint32]bool{}
		for _, handle := range c.sockFree {
			free[shm.SockIndex(handle)] = true
		}
		for i, so := range c.socks {
			if (so == nil) != free[uint32(i)] {
				x.s.Fail("socket index %d of client %d is lost, or free and in use", i, c.session)
			}
		}
		if x.s.Err() != nil {
			return
		}
	}
}

// bindAgain puts s where clients and peers find ix.
func (x *crossing) bindAgain(s *socket, congested, refused bool) {
	i := shm.SockIndex(s.handle)
	switch {
	case i >= uint32(len(s.cl.socks)) || s.cl.socks[i] != nil:
		x.s.Fail("socket index %d is none, or is used twice", i)
		return
	case s.left && (congested || refused):
		x.s.Fail("a socket that has left its port is full, or refused for want of memory")
		return
	case !s.left && s.local.ports.Get(s.port) != nil:
		x.s.Fail("port %d of %v is bound twice", s.port, s.local.addr)
		return
	}
	s.cl.socks[i] = s
	s.cl.acct.sockets++
	if s.left {
		return
	}
	s.local.ports.Set(s.port, s)
	x.watch.listSocket(s)
	if congested {
		s.congested = true
		s.local.cong.Set(s.port)
		x.st.C[stats.CongestedPorts]++
	}
	if refused {
		x.rx.awaitMemory(s)
		x.rx.overflow.released = true
	}
}
