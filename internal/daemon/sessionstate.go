package daemon

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
)

// tagSessions is the list of control connections.
const tagSessions = handover.TagDaemon + 2

// tagSession is what a client has, in that list.
const tagSession = handover.TagDaemon + 9

// encodeSessions writes the control connections. There is a recess, and the caller has the
// engine, which stands still. The result names clients for Engine.Encode. Connections of
// rdsctl with a trace or a capture are left out.
func (d *Daemon) encodeSessions(w *handover.Writer, f *outFiles) (number func(*engine.Client) uint32) {
	d.admission.answerAll()
	for gone := map[*session]bool{}; d.admission.endRest(gone); {
		d.engine.EndDetached() // which can answer others' requests
		d.admission.answerAll()
	}
	numbers := map[*engine.Client]uint32{}
	all := d.admission.handOver()
	d.handing.handed = all
	w.Begin(tagSessions)
	w.Count(len(all))
	for i, s := range all {
		s.encode(w, f)
		if s.cl != nil {
			numbers[s.cl] = uint32(i)
		}
	}
	if w.Version() >= 3 {
		unread := d.admission.unread()
		if mutant.On(mutant.HandoverUnread) {
			unread = nil
		}
		w.Count(len(unread))
		for _, c := range unread {
			w.U32(f.add(c.FD()))
			w.U32(uint32(d.unreceived.by(c)))
		}
		d.admission.encodeHoled(w)
	}
	w.End()
	return func(c *engine.Client) uint32 {
		if i, ok := numbers[c]; ok {
			return i
		}
		return handover.NoFile
	}
}

// endRest has the engine let go of processes whose sessions have ended in the recess, and
// adds them to gone. It returns false if there were none.
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
				if !mutant.On(mutant.LateAnswerKept) {
					s.lose(errNotStood)
				}
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

// leave ends all sessions when another daemon goes on with what encodeSessions wrote. Those
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

// adoptUnread reads how many descriptors the process has not received, and counts them.
func (c *connection) adoptUnread(r *handover.Reader) {
	n := ipc.MaxFDs // at most
	if r.Version() >= 3 {
		n = r.Size(ipc.MaxFDs)
	}
	if mutant.On(mutant.HandoverUnreadMost) {
		n = ipc.MaxFDs
	}
	if n > 0 && r.Err() == nil {
		c.Gave()
		c.unreceived.keep(c, n)
	}
}

// encode writes a session that stands.
func (s *session) encode(w *handover.Writer, f *outFiles) {
	w.U8(uint8(s.role))
	w.U32(f.add(s.FD()))
	if w.Version() >= 3 {
		encodeRequest(w, f, s.again)
	}
	if s.role == ipc.RoleClient {
		w.Alone(tagSession, func() { s.encodeClient(w, f) })
	}
}

func (s *session) encodeClient(w *handover.Writer, f *outFiles) {
	w.String(s.name)
	p := &s.params
	w.U32s(p.SubEntries, p.EventEntries, p.MaxMsgs, p.MaxRx, p.Slots, p.Cells, p.SendWindows, p.RecvWindows)
	w.Bool(s.TakesImports() && !mutant.On(mutant.HandoverImports))
	waits := slices.SortedFunc(maps.Keys(s.waits), func(a, b engine.Awaited) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(s.waits[a], s.waits[b]))
	})
	w.Count(len(waits))
	for _, what := range waits {
		w.Bool(what.Region)
		w.U32(what.Number)
		w.U32(s.waits[what])
	}
	if w.Version() >= 3 {
		w.Bool(s.untold != nil)
		w.U32(uint32(s.unreceived.by(s.connection)))
	}
	s.memory.encode(w, f)
}

// adopt reads what encodeClient wrote.
func (s *session) adopt(r *handover.Reader, f *inFiles) {
	s.name = printable(r.String(ipc.MaxName)) // what is printable is another version's matter
	s.params = shm.Params{SubEntries: r.U32(), EventEntries: r.U32(), MaxMsgs: r.U32(), MaxRx: r.U32(),
		Slots: r.U32(), Cells: r.U32(), SendWindows: r.U32(), RecvWindows: r.U32()}
	if imports := r.Bool(); imports && r.Err() == nil {
		if err := s.TakeImports(); err != nil {
			r.Shared()
			r.Fail("%v", err)
		}
	}
	for range r.Count(mostWaits, 1+4+4) {
		what, id := engine.Awaited{Region: r.Bool(), Number: r.U32()}, r.U32()
		if _, twice := s.waits[what]; r.Err() == nil && (twice || id == 0) {
			r.Fail("request %d waits for the end of %+v, which may be waited for already", id, what)
		}
		s.waits[what] = id
	}
	untold := r.Version() >= 3 && r.Bool()
	s.adoptUnread(r)
	if r.Err() == nil {
		s.memory.adopt(r, f, s.params)
	}
	if n := len(s.memory.send); untold && r.Err() == nil {
		if n <= int(s.params.SendWindows) {
			r.Fail("a window that its process has not, of %d that it was given at first", n)
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
