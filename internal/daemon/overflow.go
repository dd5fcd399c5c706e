package daemon

// What arrived and finds no room at its client waits in daemon memory, in order,
// until the client has made some.

// overCost is what a message in overflow costs besides its payload: without it
// empty messages would cost nothing, and be without number.
const overCost = 256

// newOver takes daemon memory for a message to s, nil when there is none. If
// all is free a message gets it whatever its length.
func (e *Engine) newOver(s *socket, a *arrival) *rxMsg {
	if e.overB > 0 && e.overB+a.n+overCost > e.cfg.OverflowBytes {
		return nil
	}
	var chunk uint32
	if a.n > 0 {
		var ok bool
		if chunk, ok = e.over.Alloc(a.n); !ok {
			return nil
		}
	}
	m := e.rxs.get()
	*m = rxMsg{sock: s, src: a.src, sport: a.sport, srcInc: a.srcInc, cookie: a.cookie, n: uint32(a.n), chunk: chunk, inOver: true}
	e.overB += a.n + overCost
	return m
}

// refuseForMemory marks a socket that had to refuse only because the daemon's
// own memory is full: its senders wait for its congestion bit to clear, which
// no reader of the socket may bring about.
func (e *Engine) refuseForMemory(s *socket) {
	e.setCongested(s, true)
	if !s.forMemory {
		s.forMemory = true
		e.forMemory = append(e.forMemory, s)
	}
}

// memoryFreed lets the sockets that refused for memory take messages again.
func (e *Engine) memoryFreed() {
	list := e.forMemory
	e.forMemory = e.forMemory[len(e.forMemory):]
	for _, s := range list {
		s.forMemory = false
		if !s.closed {
			e.relieve(s)
		}
	}
}

// queueOver puts a message at the end of its socket's overflow queue.
func (e *Engine) queueOver(m *rxMsg) {
	s := m.sock
	s.over.push(m)
	e.pendSock(s)
}

func (e *Engine) pendSock(s *socket) {
	if !s.pend.on() {
		s.cl.pendSocks.add(&s.pend, s)
	}
	e.setStuck(s.cl)
}

// freeRx gives back the memory of a message that never reached the event ring.
func (e *Engine) freeRx(m *rxMsg) {
	if m.inOver {
		if m.n > 0 {
			e.over.Free(m.chunk, int(m.n))
		}
		e.overB -= int(m.n) + overCost
		if len(e.forMemory) > 0 && e.overB < e.cfg.OverflowBytes/2 {
			e.memoryFreed()
		}
	} else if c := m.sock.cl; !c.dead {
		if m.n > 0 {
			c.recv.Free(m.chunk, int(m.n))
		}
		c.rx[m.rxid] = rxEntry{}
		c.rxFree = append(c.rxFree, m.rxid)
	}
	*m = rxMsg{}
	e.rxs.put(m)
}

// drainOver moves waiting messages of s to its client; false: no room.
func (e *Engine) drainOver(s *socket) bool {
	c := s.cl
	for s.over.n > 0 {
		m := s.over.head
		a := arrival{src: m.src, sport: m.sport, srcInc: m.srcInc, cookie: m.cookie, n: int(m.n)}
		if c.ev.Free() == 0 {
			return false
		}
		if !m.inOver {
			s.over.pop()
			e.putEvent(s, &a, m.rxid, m.chunk)
			*m = rxMsg{}
			e.rxs.put(m)
			continue
		}
		if len(c.rxFree) == 0 {
			return false
		}
		var chunk uint32
		if m.n > 0 {
			var ok bool
			if chunk, ok = c.recv.Alloc(int(m.n)); !ok {
				return false
			}
			copy(c.recv.Bytes(chunk, int(m.n)), e.over.Bytes(m.chunk, int(m.n)))
		}
		s.over.pop()
		e.putEvent(s, &a, c.takeRx(s, chunk, a.n), chunk)
		e.freeRx(m)
	}
	return true
}
