package daemon

import (
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
)

// heirs are the sessions that go over from one daemon to another. In the one that takes over they are
// the engine.Heir of its engine. A client's number is its place.
type heirs struct {
	d     *Daemon
	s     *handover.State // of a state that is read; it keeps the first error
	all   []*session
	ended []*connection    // that count for their users, see admission.exit
	asked map[*session]int // requests that the engine waits with
}

// newHeirs returns the heirs of d, which handOver then reads from s. They stand until start. The engine
// has its loop, which does not run yet. If s fails, then or later, leave has to follow.
func newHeirs(d *Daemon, s *handover.State) *heirs {
	return &heirs{d: d, s: s, asked: map[*session]int{}}
}

// handOver has the control connections go over.
func (h *heirs) handOver(s *handover.State, f *handover.Files) {
	s.Begin(tagSessions)
	for i := range s.Count(len(h.all), mostSessions, 1+4) {
		if h.handOverSession(s, f, i); s.Err() != nil {
			return
		}
	}
	if s.Version() >= 3 {
		for i := range s.Count(len(h.ended), mostSessions, 4+4) {
			h.handOverEnded(s, f, handover.Nth(s, h.ended, i))
		}
		h.d.admission.handOverHoled(s)
	}
	s.End()
	s.Faulty()
}

// handOverEnded has a connection that has ended and counts for its user go over, see admission.exit.
func (h *heirs) handOverEnded(s *handover.State, f *handover.Files, c *connection) {
	unread := 0
	if !s.Reads() {
		unread = c.unreceived.by(c)
	}
	if c = h.handOverConn(s, f, c); c == nil {
		return
	}
	if handover.As32(s, &unread); s.Reads() {
		c.adoptUnread(s, unread)
		h.d.admission.inherit(newSession(h.d, c), ipc.RoleClient)
		h.ended = append(h.ended, c)
	}
}

// handOverConn has a connection go over, with the account that its process has counted for from
// the start: c, if it is written. It returns the connection, nil after an error of s.
func (h *heirs) handOverConn(s *handover.State, f *handover.Files, c *connection) *connection {
	fd, label := -1, ""
	if !s.Reads() {
		fd, label = c.FD(), c.user.Account.Label
	}
	f.FD(s, &fd)
	known := quota.HandOverLabel(s, &label)
	if !s.Reads() || s.Err() != nil {
		return c
	}
	conn, err := h.d.listeners.file.Conn(fd)
	if err != nil {
		s.Fail("%v", err)
		return nil
	}
	id := h.d.credOf(conn)
	if known {
		id.Label = label
	} else {
		h.d.label(conn, &id) // its session goes on without a label if the process that made it has ended
	}
	return h.d.newConnection(conn, id)
}

// handOverSession has the session at a place go over.
func (h *heirs) handOverSession(s *handover.State, f *handover.Files, place int) {
	x, role := handover.Nth(s, h.all, place), ipc.Role(0)
	var c *connection
	if !s.Reads() {
		role, c = x.role, x.connection
	}
	handover.As8(s, &role)
	if role != 0 && role != ipc.RoleClient && role != ipc.RoleCtl {
		s.Fail("a connection of role %d", role)
	}
	if c = h.handOverConn(s, f, c); c == nil {
		return
	}
	if s.Reads() {
		x = newSession(h.d, c)
	}
	if s.Version() >= 3 {
		handOverRequest(s, f, role, &x.again)
	}
	if s.Reads() {
		h.d.admission.inherit(x, role)
		h.all = append(h.all, x)
	}
	if role == ipc.RoleClient {
		s.Alone(tagSession, uint32(place), func() { x.handOver(s, f) })
	}
}

// number is the engine's name of a client.
func (h *heirs) number() func(*engine.Client) uint32 {
	numbers := map[*engine.Client]uint32{}
	for i, s := range h.all {
		if s.cl != nil {
			numbers[s.cl] = uint32(i)
		}
	}
	return func(c *engine.Client) uint32 {
		if i, ok := numbers[c]; ok {
			return i
		}
		return handover.NoFile
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

// Client implements engine.Heir. The engine's thread does not run yet.
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
		h.s.Fail("client %d: %v", number, err)
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

// complete makes the state fail if a session has something that the engine does not know. It follows
// Engine.Adopt.
func (h *heirs) complete(st *handover.State) {
	for i, s := range h.all {
		if s.role != ipc.RoleClient {
			continue
		}
		st.Of(uint32(i))
		if s.cl == nil {
			st.Fail("client %d is not one of the engine", i)
		}
		s.memory.adopted(st)
		if asked := h.asked[s]; len(s.waits) != asked {
			st.Fail("%d requests wait, the engine has %d", len(s.waits), asked)
		}
		st.Shared()
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

// leave gives the sessions up, whose processes are with the other daemon. The engine's thread
// does not run.
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
