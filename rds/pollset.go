package rds

// taken returns the part of w's interest that arrives in queues. Its arrival makes
// the condition true, so it needs no check.
func (w *WaitSet) taken() (in interest) {
	queues := WaitSet{Message: w.Message, Completion: w.Completion, Notice: w.Notice, ZeroCopy: w.ZeroCopy, congestion: w.congestion}
	return queues.interest()
}

// looked returns the interest of the other conditions of w, which have to be
// checked.
func (w *WaitSet) looked() interest {
	rest := WaitSet{SendSpace: w.SendSpace, SendTo: w.SendTo, Op: w.Op, Status: w.Status, Relief: w.Relief}
	return rest.interest()
}

// watchPoll arranges that the poll set is checked when something comes in for it.
// rx.mu is held, and there is a descriptor.
func (s *Socket) watchPoll() {
	ws := &s.c.wait
	ws.unwatch(s.poll.w)
	s.poll.w = nil
	in := s.pollFor.looked()
	if in != 0 {
		s.poll.w = ws.watch(s, in)
	}
	s.pollLooks.Store(in != 0)
}

// pollLook finds the conditions of the poll set that hold, and makes the descriptor
// readable or unreadable. The descriptor is made unreadable before the check: what
// comes in later causes another check.
func (s *Socket) pollLook() {
	r := &s.c.rx
	r.mu.Lock()
	p := s.poll
	r.mu.Unlock()
	if p == nil {
		return
	}
	p.look.Lock()
	defer p.look.Unlock()
	p.quiet()
	r.mu.Lock()
	set := s.pollFor
	r.mu.Unlock()
	got, err := s.ready(&set, true)
	if !got.empty() || err != nil || s.err() != nil {
		p.ring() // an error makes it readable
	}
}

// A watch is a waiter that never waits: what it is notified of has the socket's
// poll set looked at, by the goroutine that keeps the descriptors.

// watch registers a watch at s.
func (ws *waiters) watch(s *Socket, want interest) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &waiter{sock: s, want: want, watcher: true, polls: true}
	s.wait.list.AddFront(&w.onSocket, w)
	ws.watches.Add(&w.onClient, w)
	s.count(want, 1)
	ws.widen(s.c)
	return w
}

// unwatch ends w, which may be nil.
func (ws *waiters) unwatch(w *waiter) {
	if w == nil {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.sock.wait.list.Del(&w.onSocket)
	ws.watches.Del(&w.onClient)
	w.sock.count(w.want, -1)
	w.want = 0
}

// lookAt has w's poll set checked.
func (ws *waiters) lookAt(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.lookAtLocked(w)
}

func (ws *waiters) lookAtLocked(w *waiter) {
	if w.looks {
		return
	}
	w.looks = true
	ws.looks = append(ws.looks, w)
	if k := ws.keeper; k != nil && !k.signalled.Load() {
		ws.signalLocked(k)
	}
}

// keeps makes w, which waits for the keeper of the descriptors, the waiter that is
// woken for checks. It reports whether no check is due now.
func (ws *waiters) keeps(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.keeper = w
	return len(ws.looks) == 0
}

// keepsNot ends keeps and returns the sockets whose poll sets have to be checked.
func (ws *waiters) keepsNot(w *waiter) (dirty []*Socket) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.keeper == w {
		ws.keeper = nil
	}
	for _, x := range ws.looks {
		x.looks = false
		if x.want != 0 {
			dirty = append(dirty, x.sock)
		}
	}
	clear(ws.looks)
	ws.looks = ws.looks[:0]
	return dirty
}
