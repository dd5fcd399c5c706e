package rds

import (
	"net/netip"
	"syscall"

	"github.com/rdsd/rdsd/internal/shm"
)

// rx is the receiving side of a client: the event ring, which whoever has the lock
// empties into the sockets' private queues, and the return of receive ids. What the
// daemon may have outstanding limits the private queues: MaxRx messages, and the
// statuses that were promised.
type rx struct {
	mu    rxLock
	c     *Client
	ev    *shm.Consumer
	ret   *shm.IDProducer
	arena *shm.Arena
	maxRx uint32
	// What a correct daemon cannot exceed: maxRx messages wait, a socket has so
	// many statuses.
	waiting     uint32
	maxStatuses int
	socks       []*Socket // by shm.SockIndex of their handles
	entry       shm.Entry // scratch

	// After the client has opened again (see successor).
	apart    map[*Socket]struct{} // sockets that the daemon does not have
	kept     map[uint32][]byte    // what was received before, by number
	lastKept uint32
	epoch    uint64 // daemons before this one

	dead bool // the memory is about to be unmapped

	// While a Bind is under way, events for a handle not known yet may be the
	// new socket's and wait here.
	binding bool
	early   queue[shm.Entry]
}

func (r *rx) init(c *Client, p shm.Params, arena *shm.Arena) {
	r.c, r.mu.r = c, r
	r.ev, r.ret = c.seg.EventConsumer(), c.seg.RecvRetProducer()
	r.arena, r.maxRx = arena, p.MaxRx
	r.maxStatuses = int(p.MaxMsgs + p.EventEntries) // promised, and in the ring when their ids were back
}

// poll takes in what the daemon published, for the leader.
func (r *rx) poll() bool {
	r.mu.Lock()
	n := r.takeEvents()
	r.mu.Unlock()
	return n > 0
}

// empty reports that the event ring is empty.
func (r *rx) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead || r.ev.Empty()
}

// close ends the use of the memory and returns the sockets.
func (r *rx) close() (socks []*Socket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = true
	socks = r.all()
	for _, s := range socks {
		s.closed.Store(true) // before anybody finds what is forgotten
		s.forget()
	}
	return socks
}

// takeEvents moves the events of the ring into the sockets' queues and wakes the waiters
// they concern. mu is held.
func (r *rx) takeEvents() int {
	if r.dead {
		return 0
	}
	n := 0
	for r.ev.Next(&r.entry) {
		r.dispatch(&r.entry)
		n++
	}
	r.release(n)
	return n
}

func (r *rx) release(n int) {
	if n > 0 {
		r.ev.Release()
		if r.ev.HalfTaken() && shm.WakeForRoom(r.c.seg.DaemonAsleep()) {
			r.c.ring() // the memory is in use: Close waits for mu
		}
	} else if err := r.ev.Err(); err != nil {
		_ = r.c.broken("event ring: %v", err)
	}
}

// next finds the next message for s and reports whether there is one. It looks in
// the queue of s first, then in the ring, where it moves the events of other sockets
// that come before it into their queues. mu is held.
func (r *rx) next(s *Socket, out *shm.Event) bool {
	if s.rxq.len() > 0 {
		*out = r.pop(s)
		return true
	}
	if r.dead {
		return false
	}
	n := 0
	for r.ev.Next(&r.entry) {
		n++
		if shm.EvKind(r.entry.Kind()) == shm.EvData {
			if e := r.entry.Event(); e.Sock == s.handle && !r.odd(e) {
				*out = *e
				r.release(n)
				return true
			}
		}
		r.dispatch(&r.entry)
	}
	r.release(n)
	return false
}

// sock returns the open socket with a handle, or nil if the handle is that of a
// socket that was closed.
func (r *rx) sock(handle uint32) *Socket {
	i := shm.SockIndex(handle)
	if i >= uint32(len(r.socks)) {
		return nil
	}
	s := r.socks[i]
	if s == nil || s.handle != handle {
		return nil
	}
	return s
}

// dispatch hands one event to its socket. mu is held.
func (r *rx) dispatch(e *shm.Entry) {
	kind := shm.EvKind(e.Kind())
	if kind == shm.EvData && r.odd(e.Event()) {
		return
	}
	s := r.sock(eventSock(e))
	if s == nil {
		switch {
		case r.binding && r.early.len() >= int(r.maxRx)+r.maxStatuses:
			_ = r.c.broken("%d events for a socket that is being bound", r.early.len())
		case r.binding:
			r.early.push(*e)
		case kind == shm.EvData:
			r.giveBack(e.Event().RxID) // for a socket that was closed
		}
		return
	}
	switch kind {
	case shm.EvData:
		if s.closed.Load() { // it closes, and waits to
			r.giveBack(e.Event().RxID)
			return
		}
		if r.waiting >= r.maxRx {
			_ = r.c.broken("more than %d messages", r.maxRx)
			return
		}
		r.waiting++
		s.rxq.push(*e.Event())
		s.arrived(wantMessage)
		s.notifyOne(wantMessage)
	case shm.EvStatus:
		r.settle(s, e.Status())
	case shm.EvNotice:
		n := e.Notice()
		s.noticed.Add(1) // see outRun.takes
		if n.Notice == shm.NoticeUnreachable {
			s.notifyAll(wantBarrier) // see complete
		}
		if k := NoticeKind(n.Notice); !s.unwanted.has(k) {
			s.addNotice(Notice{Kind: k, To: about(n), Count: n.Count, Reason: Reason(n.Reason)})
			s.arrived(wantNotice)
			s.notifyAll(wantNotice)
		}
	case shm.EvBarrier:
		s.notifyAll(wantBarrier)
	case shm.EvRelief:
		s.relieved(about(e.Notice()))
		s.notifyAll(wantRelief)
	case shm.EvCrowded: // what is on its way there does not count any more
		s.notifyAll(wantSpace)
	case shm.EvOverrun:
		s.end.CompareAndSwap(nil, &ErrOverrun)
		s.arrived(wantAll)
		s.notifyAll(wantAll)
	default:
		// A kind of a later version: nothing in it needs an answer.
	}
}

// about returns the destination of a notice; the zero AddrPort if the notice is
// about several.
func about(n *shm.EventNotice) netip.AddrPort {
	if n.Addr == [16]byte{} {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom16(n.Addr).Unmap(), n.Port)
}

// eventSock returns the socket's handle, which all kinds of events have in the same
// place.
func eventSock(e *shm.Entry) uint32 { return e.Event().Sock }

// settle queues the status of an operation or a message.
func (r *rx) settle(s *Socket, e *shm.EventStatus) {
	cell, known := s.cellAddr[e.Cell]
	if !known || s.comps.len() >= r.maxStatuses {
		_ = r.c.broken("a status nobody asked for, of operation %d of cell %d", e.OpID, e.Cell)
		return
	}
	key := keyOf(e, cell.base)
	if _, awaited := s.awaited[key]; key.msg && !awaited {
		_ = r.c.broken("a status nobody asked for, of message %d", e.Token)
		return
	}
	r.complete(s, key, Completion{Token: e.Token, Status: Status(e.Status), Errno: syscall.Errno(e.Errno)})
}

// complete queues c, unless nobody takes it. mu is held.
func (r *rx) complete(s *Socket, key opKey, c Completion) {
	op, awaited := s.awaited[key]
	delete(s.awaited, key)
	if awaited && !op.wanted {
		return
	}
	if key.msg {
		c.Token = op.token
	}
	s.comps.push(s.completion(key, c))
	s.queuedComps.Add(1)
	s.arrived(wantCompletion)
	s.notifyAll(wantCompletion)
}

// completion returns c with what key says.
func (s *Socket) completion(key opKey, c Completion) Completion {
	if c.To = s.cellAddr[key.cell].addr; !key.msg {
		c.ID = key.id
	}
	return c
}

// promise notes that the status of an operation of cell ce may come. tx.mu is held, mu
// is taken.
func (r *rx) promise(s *Socket, key opKey, ce *cell, op awaitedOp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.cellAddr == nil {
		s.cellAddr = map[uint32]cellRef{}
		s.awaited = map[opKey]awaitedOp{}
	}
	s.cellAddr[key.cell] = cellRef{ce.addr, ce.base}
	if op.notify || r.c.opts.Reopen != nil {
		s.awaited[key] = op
	}
}

// giveBack returns a receive id. Its memory is the daemon's again when mu is released.
func (r *rx) giveBack(id uint32) {
	if id&^shm.RxStep >= keptRx {
		delete(r.kept, id)
		return
	}
	if !r.dead {
		r.ret.Put(id)
		r.mu.returned = true
	}
}

// forget drops what s has in the memory. Completions, notices and zero-copy cookies
// stay and can be read. rx.mu is held.
func (s *Socket) forget() {
	s.rxq, s.in = queue[shm.Event]{}, inRun{}
	s.awaited, s.cellAddr, s.cong = nil, nil, congMonitor{}
	s.closePollFD()
}

// add makes s known under its handle, which is no other open socket's.
func (r *rx) add(s *Socket) bool {
	i := shm.SockIndex(s.handle)
	for uint32(len(r.socks)) <= i {
		r.socks = append(r.socks, nil)
	}
	if r.socks[i] != nil {
		_ = r.c.broken("handle %#x of two sockets", s.handle)
		return false
	}
	r.socks[i] = s
	return true
}

// startBind makes events for unknown sockets wait until endBind.
func (r *rx) startBind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeEvents() // what is of closed sockets need not wait
	r.binding = true
}

// endBind makes s known and hands it the events that came for it since startBind. s
// is nil if the bind failed. It returns false if s must not be used: the client was
// closed in between, so that the events lie in memory that is gone, or the handle
// belongs to another socket.
func (r *rx) endBind(s *Socket) bool {
	r.mu.Lock()
	if r.dead {
		r.early = queue[shm.Entry]{}
		r.mu.Unlock()
		return false
	}
	ok := s == nil || r.add(s)
	r.binding = false
	for r.early.len() > 0 {
		e := r.early.pop()
		r.dispatch(&e)
	}
	r.mu.Unlock()
	return ok
}

// remove drops s after the daemon has closed it. It gives back the messages that s
// had not read, in its queue and in the ring.
func (r *rx) remove(s *Socket) {
	r.mu.Lock()
	r.takeEvents() // its statuses and notices up to the close
	if i := shm.SockIndex(s.handle); i < uint32(len(r.socks)) && r.socks[i] == s {
		r.socks[i] = nil
	}
	delete(r.apart, s)
	r.drop(s)
	s.forget()
	r.mu.Unlock()
}

// discard gives back the messages that s, which was shut, has not read. Other
// sockets of this client, and so s itself, may be waiting for their memory.
func (r *rx) discard(s *Socket) {
	r.mu.Lock()
	r.takeEvents()
	r.drop(s)
	r.mu.Unlock()
}

// drop gives back the messages that s has not received. mu is held.
func (r *rx) drop(s *Socket) {
	if s.in.rest != nil {
		s.in.rest = nil
		r.giveBack(s.in.ev.RxID)
	}
	for s.rxq.len() > 0 {
		r.giveBack(r.pop(s).RxID)
	}
}
