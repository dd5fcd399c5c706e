package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// The engine's thread touches memory of processes. What was populated does not fault again, unless a
// process takes pages away. The kernel then makes each page anew, and has the thread wait while a hole is being
// punched in that file. So such a process would stop everybody. After a turn that was long, and when it has taken
// over from another one, the daemon looks for missing pages, and ends the sessions that have some.

const (
	// holedFor is how long no process of a user is admitted after the session of one has ended
	// because of holes, and how long another one with holes ends all sessions of the user: each session can make
	// one or two turns long before it ends.
	holedFor = time.Minute
	// looksRest is how many times as long as a search that finds nothing the pause after it is at least: such
	// searches take a tenth of a processor at most.
	looksRest = 9

	// A user whose processes get mostMarks within holedFor loses all sessions. A process that has closed its
	// connection gets fewer, because it can take memory of its own back before the daemon lets go of it.
	heldMarks, goneMarks, mostMarks = 2, 1, 3
)

// holed is a user in whose processes' memory holes were found.
type holed struct {
	until time.Time // no process of the user is admitted
	marks int
}

// suspicion is that memory has holes.
type suspicion chan struct{}

// note has the daemon look for holes soon.
func (u suspicion) note() {
	select {
	case u <- struct{}{}:
	default: // it has not looked yet
	}
}

// looked is the memory of one process that the daemon has populated. What is in it is not unmapped.
type looked struct {
	mu    sync.Mutex
	files map[*shm.Mapping]*sessionBuffer // nil: of no buffer. Guarded by mu
}

func (l *looked) add(file *shm.Mapping, b *sessionBuffer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files == nil {
		l.files = map[*shm.Mapping]*sessionBuffer{}
	}
	l.files[file] = b
}

// buffer adds and returns b.
func (l *looked) buffer(b *sessionBuffer) *sessionBuffer {
	l.add(b.file, b)
	return b
}

// remove precedes the end of a mapping. It waits while file is being looked at.
func (l *looked) remove(file *shm.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.files, file)
}

// check looks at all memory of the process, one file at a time.
func (l *looked) check() error {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.files))
	l.mu.Unlock()
	for _, file := range all {
		if err := l.checkOne(file); err != nil {
			return err
		}
	}
	return nil
}

func (l *looked) checkOne(file *shm.Mapping) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, here := l.files[file]
	if !here {
		return nil
	}
	err := file.CheckWhole()
	if b != nil && b.ended.Load() {
		return nil // the process may punch what the engine has let go of
	}
	return err
}

// lookForHoles looks for holes when there is a suspicion. It returns when ctx ends.
func (d *Daemon) lookForHoles(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.loop.long:
		}
		d.searching.Lock()
		from := time.Now()
		found := d.endHoled()
		took := time.Since(from)
		d.searching.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(restAfter(took, found)):
		}
	}
}

// restAfter is how long the pause after a search is that took so long. After one that found something there
// is none, because the user may have other processes that begin now.
func restAfter(took time.Duration, found bool) time.Duration {
	if found {
		return 0
	}
	return looksRest * took
}

// endHoled ends the sessions whose memory has holes. It reports whether there were any. d.searching is held.
func (d *Daemon) endHoled() (found bool) {
	began := time.Now()
	for _, s := range d.admission.sessions() {
		found = d.endIfHoled(s, began) || found
	}
	return found
}

// endIfHoled ends s if its memory has holes, and reports whether it has. If an earlier search than the one that
// began at this time has found some in another session of the same user, all sessions of the user end.
func (d *Daemon) endIfHoled(s *session, began time.Time) bool {
	if s.why.Load() != nil {
		return false // it ends already
	}
	err := s.memory.looked.check()
	switch {
	case err == nil:
		return false
	case !errors.Is(err, shm.ErrHoles) && !errors.Is(err, shm.ErrUnseen):
		d.summed.write(time.Now(), slog.LevelWarn, nil, "memory cannot be looked through for holes", "err", fmt.Errorf("uid %d: %w", s.id.UID, err))
		return false
	}
	d.engine.Count(stats.ClientViolations)
	marks := heldMarks
	if s.HungUp() {
		marks = goneMarks
	}
	again := d.admission.refuse(s.connection, began, marks)
	s.expel(err)
	if !again {
		return true
	}
	for _, other := range d.admission.clientsLike(s) {
		other.expel(fmt.Errorf("another process of the user has had %w", err))
	}
	return true
}

// expel has the engine end the client of s, or the session end before it has one.
func (s *session) expel(err error) {
	_ = s.askIn(context.Background(), func() error {
		if s.cl == nil {
			go s.goodbye(err) // in the middle of Hello
			return nil
		}
		s.d.engine.Expel(s.cl, err)
		return nil
	})
}

// sessions returns all of them.
func (a *admission) sessions() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.open))
}

// clientsLike returns the sessions of clients that count for the user of s.
func (a *admission) clientsLike(s *session) (all []*session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, other := range a.open {
		if c.role == ipc.RoleClient && c.user.Account == s.user.Account {
			all = append(all, other)
		}
	}
	return all
}

// refuse has no process of c's user admitted for holedFor, and marks the user. It reports whether all sessions of the
// user are to end: it has mostMarks, some of them from before began. It does nothing to users that are trusted.
func (a *admission) refuse(c *connection, began time.Time, marks int) (again bool) {
	if c.user.Trusted {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropHoled(began)
	was := a.holed[c.user.Account]
	is := holed{time.Now().Add(holedFor), min(was.marks+marks, mostMarks)}
	a.setHoled(c.user.Account, is)
	before := was.marks > 0 && was.until.Before(began.Add(holedFor))
	return before && is.marks == mostMarks
}

// dropHoled drops the users whose processes are admitted again by now. Guarded by mu.
func (a *admission) dropHoled(now time.Time) {
	maps.DeleteFunc(a.holed, func(_ config.Account, h holed) bool { return !h.until.After(now) })
}

// setHoled is guarded by mu.
func (a *admission) setHoled(account config.Account, h holed) {
	if a.holed == nil {
		a.holed = map[config.Account]holed{}
	}
	a.holed[account] = h
}

// handOverHoled has go over for how long processes of which accounts are not admitted, in ms, and their marks.
func (a *admission) handOverHoled(s *handover.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.dropHoled(now)
	var users []config.Account
	for u := range a.holed {
		if quota.HandedOver(s, u) {
			users = append(users, u)
		}
	}
	lists.Sort(users, config.Account.Compare)
	for i := range s.Count(len(users), mostSessions, 4+4+4) {
		u := handover.Nth(s, users, i)
		h := a.holed[u]
		left, marks := uint32(h.until.Sub(now).Milliseconds()), uint32(h.marks)
		quota.HandOver(s, &u)
		if s.U32s(&left, &marks); !s.Reads() {
			continue
		}
		if s.Err() != nil {
			return
		}
		if marks > mostMarks {
			s.Fail("a user with %d marks", marks)
			return
		}
		a.setHoled(u, holed{now.Add(min(time.Duration(left)*time.Millisecond, holedFor)), int(marks)})
	}
}
