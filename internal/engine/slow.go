package engine

import (
	"maps"
	"slices"

	"github.com/rdsd/rdsd/internal/mutant"
)

// An access of the engine's thread to memory of a process can take as long as the process likes:
// while pages of a file are being taken away (MADV_REMOVE), the kernel has whoever touches them
// wait. So the engine looks at the clock behind each part of what it copies. If a part was slow and
// the thread had page faults, the turn copies nothing more, and the users whose memory was copied
// are set aside: the engine copies nothing from or to their memory and takes nothing from their
// rings until somebody has examined all their memory (GoOn). Their messages and operations wait where
// they are, and what arrives for them waits in daemon memory. Other users go on in the next turn.

const (
	lookBytes = 16 << 10 // of processes' memory between two looks at the clock
	slowNs    = 250_000  // a part that takes longer is slow
	descBytes = 256      // a message counts so much besides its payload
)

// slow is what the engine knows about slow memory. The zero value finds none.
type slow struct {
	watch SlowWatch // Clock is nil: nobody looks
	since int64     // when the current part began
	left  int       // bytes of it that are to come
	over  bool      // this turn copies nothing more
	aside int       // accounts that are set aside
}

// SlowWatch is what an engine asks and whom it notifies about slow memory. The engine's goroutine
// calls it.
type SlowWatch struct {
	Clock   func() int64 // the time of Turn at this moment
	Faulted func() bool  // whether the engine's thread has had page faults since the last call
	Found   func()       // users were set aside: examine their memory, then call GoOn
}

// WatchMemory has the engine look for slow memory. Before the first turn.
func (e *Engine) WatchMemory(w SlowWatch) { e.slow.watch = w }

// begin begins a part.
func (s *slow) begin(now int64) { s.since, s.left = now, lookBytes }

// anew begins a part after work of another kind.
func (s *slow) anew() {
	if s.watch.Clock != nil {
		s.begin(s.watch.Clock())
	}
}

// renew begins a turn.
func (s *slow) renew(now int64) {
	s.over = false
	s.begin(now)
}

// touched notes that n bytes of memory of two processes were copied, or taken from their rings.
// Either may be nil. It returns false if the turn may copy nothing more.
func (e *Engine) touched(n int, a, b *Client) bool {
	if e.slow.left -= n; e.slow.left > 0 || e.slow.watch.Clock == nil {
		return true
	}
	return e.look(a, b)
}

// look ends a part, and sets the users of a and b aside if it was slow because of page faults.
func (e *Engine) look(a, b *Client) bool {
	s := &e.slow
	from, now := s.since, s.watch.Clock()
	s.begin(now)
	if now-from <= slowNs || mutant.On(mutant.SlowUnseen) || !s.watch.Faulted() {
		return !s.over
	}
	s.over = true
	e.setAside(a)
	e.setAside(b)
	s.watch.Found()
	return false
}

func (e *Engine) setAside(c *Client) {
	if c != nil && !c.acct.aside && !mutant.On(mutant.SlowGoesOn) {
		c.acct.aside = true
		e.slow.aside++
	}
}

// copyShared copies src, which is memory of the process from, to dst, which is of the process to.
// They are equally long. It returns how much it has copied: less than all if the turn may copy
// nothing more. Either process may be nil.
func (e *Engine) copyShared(dst, src []byte, to, from *Client) (n int) {
	for n < len(src) {
		k := copy(dst[n:], src[n:min(len(src), n+lookBytes)])
		if n += k; !e.touched(k, to, from) {
			break
		}
	}
	return n
}

// isAside reports whether c's memory is not to be touched.
func (c *Client) isAside() bool { return c.acct.aside }

// waitsAside reports whether the first message of sl, which is not empty, waits for the
// examination of memory.
func (e *Engine) waitsAside(sl *slot) bool {
	if e.slow.aside == 0 {
		return false
	}
	if sl.cl.isAside() {
		return true
	}
	o := sl.q.Head.Of.unfinished()
	if o == nil {
		return false
	}
	r := e.keys.by[o.RKey()]
	return r != nil && r.cl.isAside()
}

// Aside returns the users that are set aside, by quota.User.Account.
func (e *Engine) Aside() (all []uint32) {
	if e.slow.aside == 0 {
		return nil
	}
	for _, uid := range slices.Sorted(maps.Keys(e.users.accounts)) {
		if e.users.accounts[uid].aside {
			all = append(all, uid)
		}
	}
	return all
}

// GoOn ends what sets these users aside: their memory was examined.
func (e *Engine) GoOn(users []uint32) {
	for _, uid := range users {
		if a := e.users.accounts[uid]; a != nil {
			e.endAside(a)
		}
	}
}

func (e *Engine) endAside(a *account) {
	if a.aside {
		a.aside = false
		e.slow.aside--
	}
}
