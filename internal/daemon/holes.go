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

	"github.com/rdsd/rdsd/internal/mutant"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
)

// The engine's thread touches memory of processes. What was populated does not fault again, unless a
// process takes pages away. The kernel then makes each page anew, and has the thread wait while a hole is being
// punched in that file. So such a process would stop everybody. After a turn that was long the daemon
// looks for missing pages, and ends the sessions that have some.

const (
	// holedFor is how long no process of a user is admitted after the session of one has ended
	// because of holes: each session can make one or two turns long before it ends.
	holedFor = time.Minute
	// looksRest is how many times as long as a search the pause after it is at least: the searches
	// take a tenth of a processor at most.
	looksRest = 9
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
	for _, s := range d.admission.sessions() {
		err := s.memory.looked.check()
		if errors.Is(err, shm.ErrHoles) || errors.Is(err, shm.ErrUnseen) {
			d.engine.Count(stats.ClientViolations)
			d.admission.refuse(s.connection)
			_ = s.askIn(context.Background(), func() error {
				if s.cl != nil {
					d.engine.Expel(s.cl, err)
				}
				return nil
			})
		} else if err != nil {
			d.summed.write(time.Now(), slog.LevelWarn, nil, "memory cannot be looked through for holes", "err", fmt.Errorf("uid %d: %w", s.id.UID, err))
		}
	}
}

// sessions returns all of them.
func (a *admission) sessions() []*session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.open))
}

// refuse has no process of c's user admitted for holedFor. It does nothing to users that are trusted.
func (a *admission) refuse(c *connection) {
	if c.user.Trusted || mutant.On(mutant.HolesBack) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.holed, func(_ uint32, until time.Time) bool { return time.Now().After(until) })
	if a.holed == nil {
		a.holed = map[uint32]time.Time{}
	}
	a.holed[c.user.UID] = time.Now().Add(holedFor)
}
