package daemon

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/lists"
)

// tagSessions is the list of control connections.
const tagSessions = handover.TagDaemon + 2

// tagSession is what a client has, in that list.
const tagSession = handover.TagDaemon + 9

// sessionsToHand returns the control connections that go over to another daemon. There is a recess.
// The engine's thread stands still. Connections of rdsctl with a trace or a capture are left out.
func (d *Daemon) sessionsToHand() *heirs {
	d.admission.answerAll()
	for gone := map[*session]bool{}; d.admission.endRest(gone); {
		d.engine.EndDetached() // which can answer others' requests
		d.admission.answerAll()
	}
	h := &heirs{d: d, all: d.admission.handOver(), ended: d.admission.unread()}
	d.handing.handed = h.all
	return h
}

// endRest has the engine let go of processes whose sessions have ended in the recess, and
// adds them to gone. It returns false if there were none. Only the engine's thread calls it, or who
// has the engine while it stands still.
func (a *admission) endRest(gone map[*session]bool) (any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, s := range a.open {
		if s.cl == nil || gone[s] {
			continue
		}
		if c.closed() || s.why.Load() != nil {
			s.d.engine.Detach(s.cl)
			gone[s], any = true, true
		}
	}
	return any
}

// loseExcess ends the sessions of clients, which have too much for a planned restart.
func (a *admission) loseExcess(clients []*engine.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.open {
		if s.cl != nil && slices.Contains(clients, s.cl) {
			s.lose(errTooMuch)
		}
	}
}

// answerAll waits until no answer is on its way. Nobody serves in that time, so a session whose
// answer is still on its way after recessSend is lost.
func (a *admission) answerAll() {
	late := time.NewTimer(recessSend)
	defer late.Stop()
	for {
		r, to := a.answering()
		if len(to) == 0 {
			return
		}
		select {
		case <-r.changed:
		case <-late.C:
			for _, s := range to {
				s.lose(errNotStood)
			}
			return
		}
	}
}

// answering returns the sessions with an answer on its way.
func (a *admission) answering() (r *recess, to []*session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, s := range a.open {
		if c.answers.Load() > 0 && !c.closed() {
			to = append(to, s)
		}
	}
	return a.inRecess, to
}

// handOver returns the sessions that go on in another daemon, in the order of their arrival.
func (a *admission) handOver() (all []*session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, s := range a.open {
		c.handed = !c.closed() && s.why.Load() == nil && s.feeds.trace == nil && s.feeds.capture == nil
		if c.handed {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(a.nth, b.nth) })
	return all
}

// unread returns the connections that have ended with descriptors that their processes have
// not received, in the order of their arrival. They keep their own descriptors until leave or
// resume, because their processes may receive at any moment.
func (a *admission) unread() (all []*connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.ending {
		if c.Unread() && c.Hold() {
			c.held = true
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *connection) int { return cmp.Compare(a.nth, b.nth) })
	return all
}

// leave ends all sessions when another daemon goes on with them. Those
// that are left out are notified. The engine's thread has ended. leave waits until all
// sessions have.
func (a *admission) leave() {
	a.mu.Lock()
	a.ended = true
	for c, s := range a.open {
		if c.handed {
			go c.leave()
			continue
		}
		reason := errReplaced
		if why := s.why.Load(); why != nil {
			reason = *why
		}
		go c.goodbye(reason)
	}
	for c := range a.ending {
		c.let()
		_ = c.Leave()
	}
	a.mu.Unlock()
	a.served.Wait()
}

// adoptUnread notes that the process has not received so many descriptors.
func (c *connection) adoptUnread(s *handover.State, n int) {
	if n > ipc.MaxFDs {
		s.Fail("%d descriptors that a process has not received", n)
	}
	if n > 0 && s.Err() == nil {
		c.Gave()
		c.unreceived.keep(c, n)
	}
}

// handOver has go over what the session of a client has, which stands.
func (s *session) handOver(st *handover.State, f *handover.Files) {
	p, imports := &s.params, !st.Reads() && s.TakesImports()
	st.String(&s.name, ipc.MaxName)
	st.U32s(&p.SubEntries, &p.EventEntries, &p.MaxMsgs, &p.MaxRx, &p.Slots, &p.Cells, &p.SendWindows, &p.RecvWindows)
	st.Bool(&imports)
	if st.Reads() {
		s.name = printable(s.name) // what is printable is another version's matter
		if imports && st.Err() == nil {
			if err := s.TakeImports(); err != nil {
				st.Shared()
				st.Fail("%v", err)
			}
		}
	}
	s.handOverWaits(st)
	untold, unread := s.untold != nil, ipc.MaxFDs // at most, of a state of an earlier version
	if st.Version() >= 3 {
		unread = s.unreceived.by(s.connection)
		st.Bool(&untold)
		handover.As32(st, &unread)
	}
	if st.Reads() {
		s.adoptUnread(st, unread)
	}
	if st.Err() == nil {
		s.memory.pass(st, f, s.params)
	}
	if st.Reads() {
		s.adoptUntold(st, untold)
	}
}

// handOverWaits has the requests that wait go over.
func (s *session) handOverWaits(st *handover.State) {
	waits := slices.Collect(maps.Keys(s.waits))
	lists.Sort(waits, func(a, b engine.Awaited) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(s.waits[a], s.waits[b]))
	})
	for i := range st.Count(len(waits), mostWaits, 1+4+4) {
		what := handover.Nth(st, waits, i)
		id := s.waits[what]
		st.Bool(&what.Region)
		st.U32(&what.Number)
		if st.U32(&id); !st.Reads() {
			continue
		}
		if _, twice := s.waits[what]; st.Err() == nil && (twice || id == 0) {
			st.Fail("request %d waits for the end of %+v, which may be waited for already", id, what)
		}
		s.waits[what] = id
	}
}

// adoptUntold notes whether the process was not sent its last window, and whether it has sealed memory.
func (s *session) adoptUntold(st *handover.State, untold bool) {
	if n := len(s.memory.send); untold && st.Err() == nil {
		if n <= int(s.params.SendWindows) {
			st.Fail("a window that its process has not, of %d that it was given at first", n)
			return
		}
		s.untold = &grown{s.memory.send[n-1], uint32(n)}
	}
	if err := s.memory.sealed; err != nil {
		s.why.Store(&err)
	}
}

const (
	mostSessions = 1 << 20 // in a state
	mostWaits    = 1 << 24 // of a session
)
