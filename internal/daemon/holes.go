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

	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/mutant"
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
	// looksRest is how many times as long as a search the pause after it is at least: the searches
	// take a tenth of a processor at most.
	looksRest = 9
)

// suspicion is that memory has holes.
type suspicion chan struct{}

// note has the daemon look for holes soon.
func (s suspicion) note() {
	select {
	case s <- struct{}{}:
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
		from := time.Now()
		d.endHoled()
		select {
		case <-ctx.Done():
			return
		case <-time.After(looksRest * time.Since(from)):
		}
	}
}

// endHoled ends the sessions whose memory has holes.
func (d *Daemon) endHoled() {
	began := time.Now()
	for _, s := range d.admission.sessions() {
		d.endIfHoled(s, began)
	}
}

// endIfHoled ends s if its memory has holes. If another session of the same user had some, found before the
// search that began at this time, all sessions of the user end.
func (d *Daemon) endIfHoled(s *session, began time.Time) {
	err := s.memory.looked.check()
	switch {
	case err == nil:
		return
	case !errors.Is(err, shm.ErrHoles) && !errors.Is(err, shm.ErrUnseen):
		d.summed.write(time.Now(), slog.LevelWarn, nil, "memory cannot be looked through for holes", "err", fmt.Errorf("uid %d: %w", s.id.UID, err))
		return
	}
	d.engine.Count(stats.ClientViolations)
	again := d.admission.refuse(s.connection, began)
	s.expel(err)
	if !again {
		return
	}
	for _, other := range d.admission.clientsLike(s) {
		other.expel(fmt.Errorf("another process of the user has had %w", err))
	}
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

// refuse has no process of c's user admitted for holedFor. It reports whether that was so already at
// began. It does nothing to users that are trusted.
func (a *admission) refuse(c *connection, began time.Time) (again bool) {
	if c.user.Trusted || mutant.On(mutant.HolesBack) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropHoled(began)
	until, is := a.holed[c.user.Account]
	a.setHoled(c.user.Account, time.Now().Add(holedFor))
	return is && until.Before(began.Add(holedFor)) && !mutant.On(mutant.HolesAgain)
}

// dropHoled drops the users whose processes are admitted again by now. Guarded by mu.
func (a *admission) dropHoled(now time.Time) {
	maps.DeleteFunc(a.holed, func(_ uint32, until time.Time) bool { return !until.After(now) })
}

// setHoled is guarded by mu.
func (a *admission) setHoled(account uint32, until time.Time) {
	if a.holed == nil {
		a.holed = map[uint32]time.Time{}
	}
	a.holed[account] = until
}

// encodeHoled writes for how long processes of which users are not admitted, in ms.
func (a *admission) encodeHoled(w *handover.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.dropHoled(now)
	users := slices.Sorted(maps.Keys(a.holed))
	if mutant.On(mutant.HandoverHoles) {
		users = nil
	}
	w.Count(len(users))
	for _, u := range users {
		w.U32s(u, uint32(a.holed[u].Sub(now).Milliseconds()))
	}
}

// adoptHoled reads what encodeHoled has written.
func (a *admission) adoptHoled(r *handover.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for range r.Count(mostSessions, 4+4) {
		u, left := r.U32(), time.Duration(r.U32())*time.Millisecond
		a.setHoled(u, now.Add(min(left, holedFor)))
	}
}
