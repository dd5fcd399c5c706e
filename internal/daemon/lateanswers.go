package daemon

import (
	"sync"

	"github.com/rdsd/rdsd/internal/ipc"
)

// mostLate is how many answers a process may leave the daemon with. Its session ends beyond that.
const mostLate = 1024

// lateAnswers are those to requests that end something, for which the process had no room when they were due. One
// goroutine of the session sends them in turn, so each costs what it is, and not a stack. Any goroutine.
type lateAnswers struct {
	mu   sync.Mutex
	list []lateAnswer // guarded by mu. A goroutine sends the first
}

type lateAnswer struct {
	id  uint32
	err error
}

// sendLater sends a when there is room for it. It does not block. a is counted in s.answers until it is sent, or the
// session has ended.
func (s *session) sendLater(a lateAnswer) {
	l := &s.late
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == mostLate {
		go s.end()
		return
	}
	s.answers.Add(1)
	if l.list = append(l.list, a); len(l.list) == 1 {
		go s.sendLate(a)
	}
}

// sendLate sends all from the first on, which is a.
func (s *session) sendLate(a lateAnswer) {
	for more := true; more; a, more = s.late.next() {
		if s.answer(a.id, &ipc.OK{}, a.err) != nil {
			s.end() // the process would wait for the answer for ever
		}
		s.d.admission.answered(s.connection)
	}
}

// next drops the first, which is sent, and returns the one behind it.
func (l *lateAnswers) next() (lateAnswer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list = l.list[1:]; len(l.list) == 0 {
		l.list = nil
		return lateAnswer{}, false
	}
	return l.list[0], true
}
