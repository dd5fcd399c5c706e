package engine

import "github.com/rdsd/rdsd/internal/shm"

// The receive arena and the receive ids belong to the process. What a socket has of them is
// its own until the application has read it. Sockets that are not read must leave something
// for the others. So half of both is kept for sockets without unread messages. A socket
// gets more of the other half only while it would then have no more than is free of that
// half: one socket alone gets a quarter, a second one an eighth, and so on. Each socket
// also gets one message from the kept half. That message may take no more than half of what
// is free there, so that long messages leave room for short ones. Messages beyond a
// socket's share wait in daemon memory.

// mayTake reports whether s may have a message of n bytes in its client's
// receive memory; empty: nothing that is there of s is in the way of more.
func (c *Client) mayTake(s *socket, n int, empty bool) bool {
	if len(c.rxFree) == 0 {
		return false
	}
	all := c.recv.Windows() * shm.WindowSize
	free := all - c.recv.InUse()
	if empty {
		return 2*n <= free
	}
	return s.rxIDs < len(c.rxFree)-len(c.rx)/2 && s.rxMem+shm.ChunkSize(n) <= free-all/2
}

// takeRx takes receive memory and a receive id for a message of s of n bytes;
// false: it has to wait.
func (c *Client) takeRx(s *socket, n int, empty bool) (id, chunk uint32, ok bool) {
	if !c.mayTake(s, n, empty) {
		return 0, 0, false
	}
	if n > 0 {
		if chunk, ok = c.recv.Alloc(n); !ok {
			return 0, 0, false
		}
	}
	id = c.rxFree[len(c.rxFree)-1]
	c.rxFree = c.rxFree[:len(c.rxFree)-1]
	c.rx[id] = rxEntry{sock: s, chunk: chunk, n: uint32(n)}
	s.rxIDs++
	s.rxMem += shm.ChunkSize(n)
	return id, chunk, true
}

// freeRxID gives back what takeRx took. What waits for it gets another try: the
// socket whose message it was, and those that have nothing.
func (cs *clientTable) freeRxID(c *Client, id uint32) {
	r := &c.rx[id]
	s, n := r.sock, int(r.n)
	if n > 0 {
		c.recv.Free(r.chunk, n)
	}
	s.rxIDs--
	s.rxMem -= shm.ChunkSize(n)
	if r.told {
		s.rxTold--
	}
	*r = rxEntry{}
	c.rxFree = append(c.rxFree, id)
	if s.over.N > 0 && !s.closed {
		cs.e.rx.pendSock(s)
	} else if c.pendSocks.N > 0 {
		c.untried = c.pendSocks.N
		cs.pend(c)
	}
}
