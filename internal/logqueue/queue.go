// Package logqueue writes a log to a file whose reader may stop reading, such as a pipe to a
// supervisor. Whoever logs never waits: lines wait in memory, and what has no room is dropped
// and counted.
//
// The file stays in blocking mode. Its description may be shared with other processes, which
// would not expect another mode. So a goroutine writes, and waits in the kernel if it has to.
package logqueue

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	most     = 1 << 20 // bytes of lines that wait, with lineCost for each
	lineCost = 64
)

// Queue is an io.Writer. Each Write is one line, or some lines that belong together. Any
// goroutine may call its methods.
type Queue struct {
	out io.Writer

	mu       sync.Mutex
	lines    [][]byte                       // that wait; guarded by mu
	bytes    int                            // of lines, with lineCost; guarded by mu
	lost     uint64                         // dropped behind lines; guarded by mu
	idle     chan struct{}                  // nil: no goroutine writes. Closed when it ends; guarded by mu
	writing  time.Time                      // when the write in progress began; guarded by mu
	dropped  uint64                         // so far; guarded by mu
	lastDrop time.Time                      // guarded by mu
	failed   error                          // of the last line that could not be written; guarded by mu
	says     func(w io.Writer, lost uint64) // guarded by mu
}

// New returns a Queue that writes to out.
func New(out io.Writer) *Queue {
	return &Queue{out: out, says: func(w io.Writer, lost uint64) {
		fmt.Fprintf(w, "rdsd: %d lines were dropped, because nobody read them\n", lost)
	}}
}

// Says sets how the log says that lines were dropped: f writes such a line with one Write.
func (q *Queue) Says(f func(w io.Writer, lost uint64)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.says = f
}

// Write queues p and returns at once. It never fails. If there is no room, or lines have been
// dropped that the log does not mention yet, it drops p: the line about dropped lines stands
// where they are missing.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost > 0 || q.bytes+len(p)+lineCost > most {
		q.lost++
		q.dropped++
		q.lastDrop = time.Now()
	} else {
		q.lines = append(q.lines, append([]byte(nil), p...))
		q.bytes += len(p) + lineCost
	}
	if q.idle == nil {
		q.idle, q.writing = make(chan struct{}), time.Now()
		go q.drain()
	}
	return len(p), nil
}

// drain writes what waits. It ends when nothing does.
func (q *Queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) > 0 || q.lost > 0 {
		var write func() error
		if len(q.lines) > 0 {
			line := q.lines[0]
			write = func() error { _, err := q.out.Write(line); return err }
			q.lines, q.bytes = q.lines[1:], q.bytes-len(line)-lineCost
		} else {
			says, lost := q.says, q.lost
			write, q.lost = func() error { says(q.out, lost); return nil }, 0
		}
		q.writing = time.Now()
		q.mu.Unlock()
		err := write()
		q.mu.Lock()
		if err != nil { // Warning tells it
			q.dropped++
			q.lastDrop, q.failed = time.Now(), err
		}
	}
	close(q.idle)
	q.idle = nil
}

// Flush waits until all lines are written, for at most d. It reports whether they are.
func (q *Queue) Flush(d time.Duration) bool {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return true
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-idle:
		return true
	case <-late.C:
		return false
	}
}

// Dropped is how many lines were dropped so far. A nil Queue has dropped none.
func (q *Queue) Dropped() uint64 {
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

const (
	slow   = time.Second // a write that takes longer is one that nobody reads
	recent = time.Hour   // how long Warning mentions dropped lines
)

// Warning says what is wrong with the log at the time now. It is "" if nothing is, and for a nil
// Queue.
func (q *Queue) Warning(now time.Time) string {
	if q == nil {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	stuck := q.idle != nil && now.Sub(q.writing) >= slow
	dropped := q.dropped > 0 && now.Sub(q.lastDrop) < recent
	switch {
	case stuck:
		return fmt.Sprintf("log: nobody has read the daemon's standard error for %v: %d lines wait, %d were dropped; see to the program that reads it",
			now.Sub(q.writing).Round(time.Second), len(q.lines)+1, q.dropped)
	case dropped && q.failed != nil:
		return fmt.Sprintf("log: %d lines were not written, the last at %v: %v; see to the disk or the program that reads the daemon's standard error",
			q.dropped, q.lastDrop.UTC().Format(time.RFC3339), q.failed)
	case dropped:
		return fmt.Sprintf("log: %d lines were dropped, the last at %v, because the program that reads the daemon's standard error was too slow",
			q.dropped, q.lastDrop.UTC().Format(time.RFC3339))
	}
	return ""
}
