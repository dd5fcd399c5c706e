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
	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// The engine's thread touches memory of processes. What was populated does not fault again, unless a
// process takes pages away. The kernel then makes each page anew, and has the thread wait while a hole is being
// punched in that file. So such a process would stop everybody. After a turn that was long and had page faults,
// and when the engine has set users aside, the daemon looks for missing pages, and ends the sessions that have some.

const (
	// holedFor is how long no process of a user is admitted after the session of one has ended
	// because of holes, and how long another one with holes ends all sessions of the user: each can make a turn
	// long before it ends.
	holedFor = time.Minute
	// looksRest is how many times as long as a search the pause after it is at least: the searches
	// take a tenth of a processor at most.
	looksRest = 9
	mostHoled = 1 << 16 // users in a state
)

// suspicion is that memory has holes. Only the loop notes it.
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
		d.endHoled(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(looksRest * time.Since(from)):
		}
	}
}

// endHoled ends the sessions whose memory has holes. The sessions of users that the engine has set
// aside come first, and these users go on before others are examined.
func (d *Daemon) endHoled(ctx context.Context) {
	began := time.Now()
	var aside []uint32
	if d.loop.ask(ctx, func() { aside = d.engine.Aside() }) != nil {
		return // the engine has ended
	}
	isAside := func(s *session) bool { return slices.Contains(aside, s.user.Account) }
	all := d.admission.sessions()
	for _, s := range all {
		if isAside(s) {
			d.endIfHoled(s, began)
		}
	}
	d.engine.Do(func() { d.engine.GoOn(aside) })
	for _, s := range all {
		if !isAside(s) {
			d.endIfHoled(s, began)
		}
	}
}

// endIfHoled ends s if its memory has holes. If another session of the same user had some before,
// when the search that began at this time had not begun, all sessions of the user end.
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
	d.expel(s, err)
	if !again {
		return
	}
	for _, other := range d.admission.sessions() {
		if other.user.Account == s.user.Account {
			d.expel(other, fmt.Errorf("another process of the user has had %w", err))
		}
	}
}

// expel has the engine end the session of s because of err.
func (d *Daemon) expel(s *session, err error) {
	_ = s.askIn(context.Background(), func() error {
		if s.cl != nil {
			d.engine.Expel(s.cl, err)
		}
		return nil
	})
}

// sessions returns all of them.
func (a *admission) sessions() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.open))
}

// refuse has no process of c's user admitted for holedFor. It returns true if that was so already at
// began. It does nothing to users that are trusted.
func (a *admission) refuse(c *connection, began time.Time) (again bool) {
	if c.user.Trusted || mutant.On(mutant.HolesBack) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.holed, func(_ uint32, until time.Time) bool { return began.After(until) })
	if a.holed == nil {
		a.holed = map[uint32]time.Time{}
	}
	until, is := a.holed[c.user.Account]
	a.holed[c.user.Account] = time.Now().Add(holedFor)
	return is && until.Before(began.Add(holedFor)) && !mutant.On(mutant.HolesAgain)
}

// encodeHoled writes until when processes of which users are not admitted.
func (a *admission) encodeHoled(w *handover.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	users := slices.Sorted(maps.Keys(a.holed))
	if mutant.On(mutant.HandoverHoles) {
		users = nil
	}
	w.Count(len(users))
	for _, u := range users {
		w.U32(u)
		w.I64(a.holed[u].UnixNano())
	}
}

// adoptHoled reads what encodeHoled has written.
func (a *admission) adoptHoled(r *handover.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	latest := time.Now().Add(holedFor)
	for range r.Count(mostHoled, 4+8) {
		u, until := r.U32(), time.Unix(0, r.I64())
		if until.After(latest) {
			until = latest // the clock was set
		}
		if a.holed == nil {
			a.holed = map[uint32]time.Time{}
		}
		a.holed[u] = until
	}
}
