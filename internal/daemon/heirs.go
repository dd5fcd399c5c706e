package daemon

import (
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
)

// heirs are the sessions that this daemon takes over from another one. It is the engine.Heir
// of its engine. A client's number is its place.
type heirs struct {
	d     *Daemon
	r     *handover.Reader // of the state; it keeps the first error
	all   []*session
	ended []*connection    // that count for their users, see admission.exit
	asked map[*session]int // requests that the engine waits with
}

// adoptSessions makes the sessions that encodeSessions of another daemon wrote. They stand
// until start. The engine has its loop, which does not run yet. If r fails, then or later,
// leave has to follow.
func (d *Daemon) adoptSessions(r *handover.Reader, f *inFiles) *heirs {
	h := &heirs{d: d, r: r, asked: map[*session]int{}}
	r.Begin(tagSessions)
	for range r.Count(mostSessions, 1+4) {
		h.adopt(r, f)
		if r.Err() != nil {
			return h
		}
	}
	if r.Version() >= 3 {
		for range r.Count(mostSessions, 4+4) {
			h.adoptEnded(r, f)
		}
		d.admission.adoptHoled(r)
	}
	r.End()
	r.Faulty()
	return h
}

// adoptEnded reads a connection that has ended and counts for its user, see admission.exit.
func (h *heirs) adoptEnded(r *handover.Reader, f *inFiles) {
	c := h.adoptConn(r, f)
	if c == nil {
		return
	}
	c.adoptUnread(r)
	h.d.admission.inherit(newSession(h.d, c), ipc.RoleClient)
	h.ended = append(h.ended, c)
}

// adoptConn reads a connection. It returns nil after an error of r.
func (h *heirs) adoptConn(r *handover.Reader, f *inFiles) *connection {
	fd := f.take(r, r.U32())
	if r.Err() != nil {
		return nil
	}
	conn, err := h.d.listeners.file.Conn(fd)
	if err != nil {
		r.Fail("%v", err)
		return nil
	}
	return h.d.newConnection(conn, h.d.credOf(conn))
}

// adopt reads one session.
func (h *heirs) adopt(r *handover.Reader, f *inFiles) {
	role := ipc.Role(r.U8())
	if r.Err() == nil && role != 0 && role != ipc.RoleClient && role != ipc.RoleCtl {
		r.Fail("a connection of role %d", role)
	}
	c := h.adoptConn(r, f)
	if c == nil {
		return
	}
	s := newSession(h.d, c)
	if r.Version() >= 3 {
		s.again = adoptRequest(r, f, role)
	}
	h.d.admission.inherit(s, role)
	h.all = append(h.all, s)
	if role == ipc.RoleClient {
		r.Alone(tagSession, uint32(len(h.all)-1), func() { s.adopt(r, f) })
	}
}

// inherit takes in a session of another daemon. Limits are for what comes after it.
func (a *admission) inherit(s *session, role ipc.Role) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(s)
	if role == 0 && s.again == nil {
		a.silent = append(a.silent, s.connection) // none is closed, because the other daemon has it, too
	} else if role != 0 {
		a.count(s.connection, role)
	}
}

// Client implements engine.Heir.
func (h *heirs) Client(number uint32) *engine.Client {
	if uint64(number) >= uint64(len(h.all)) {
		return nil
	}
	s := h.all[number]
	if s.role != ipc.RoleClient || s.cl != nil {
		return nil
	}
	c, windows, err := s.client()
	if err == nil {
		err = s.watch(c)
	}
	if err != nil {
		h.r.Fail("client %d: %v", number, err)
		return nil
	}
	c.Inherit(windows...)
	s.cl = c
	return c
}

// Buffer implements engine.Heir.
func (h *heirs) Buffer(client, buffer uint32) ([]byte, func()) {
	return h.all[client].memory.buffer(buffer)
}

// Later implements engine.Heir.
func (h *heirs) Later(client uint32, what engine.Awaited) func(error) {
	s := h.all[client]
	if _, waits := s.waits[what]; !waits {
		return nil
	}
	h.asked[s]++
	return s.answerLater(what)
}

// complete makes r fail if a session has something that the engine does not know. It follows
// Engine.Adopt.
func (h *heirs) complete(r *handover.Reader) {
	for i, s := range h.all {
		if s.role != ipc.RoleClient {
			continue
		}
		r.Of(uint32(i))
		if s.cl == nil {
			r.Fail("client %d is not one of the engine", i)
		}
		s.memory.adopted(r)
		if asked := h.asked[s]; len(s.waits) != asked {
			r.Fail("%d requests wait, the engine has %d", len(s.waits), asked)
		}
		r.Shared()
	}
}

// start has the sessions serve on.
func (h *heirs) start() {
	for _, s := range h.all {
		go s.run()
	}
	for _, c := range h.ended {
		c.end()
		go h.d.admission.exit(c)
	}
}

// leave gives the sessions up, whose processes are with the other daemon. The engine must not
// work.
func (h *heirs) leave() {
	for _, s := range h.all {
		if s.cl != nil {
			h.d.loop.unwatchBell(s.memory.daemon.Recv)
		}
		s.connection.leave()
		if s.again != nil {
			s.again.CloseFDs()
		}
		s.memory.leave()
		h.d.admission.exit(s.connection)
	}
	for _, c := range h.ended {
		c.leave()
		h.d.admission.exit(c)
	}
	h.all, h.ended = nil, nil
}
