package rds

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rdsd/rdsd/internal/lists"
	"github.com/rdsd/rdsd/internal/shm"
)

// interest is a set of things a waiter wants to be woken for.
type interest uint16

const (
	wantMessage interest = 1 << iota
	wantSpace
	wantMemory // message ids or send arena of the whole client
	wantRelief
	wantCompletion
	wantBarrier
	wantNotice
	wantZeroCopy
	wantCongestion
	wantEnd // of the client only

	interests = 10
	wantAll   = interest(1<<interests - 1)

	// wantReturns: what returned messages may help with.
	wantReturns = wantSpace | wantMemory | wantZeroCopy | wantRelief | wantCongestion
)

// waiter is one goroutine that waits at a socket. It enters, checks again whether it
// has to wait, parks, and leaves. Everything that happens after enter signals the
// waiter, so nothing is missed between the check and the parking.
type waiter struct {
	sock *Socket
	want interest
	// watcher only looks: it is woken along with those who consume, not in
	// their place.
	watcher   bool
	polls     bool // a watch, see pollset.go
	looks     bool // a watch that is in waiters.looks
	signalled atomic.Bool
	ch        chan struct{} // holds one: signalled, or made leader
	gen       uint64        // counts uses, so that a late context does not hit the next one
	onSocket  lists.Link[waiter]
	onClient  lists.Link[waiter]
}

// waiters are all waiters of one client, and which of them leads. The leader
// looks after the rings for everybody; see lead.go.
//
// Lock order: tx.mu or rx.mu before mu.
type waiters struct {
	mu      sync.Mutex
	all     lists.List[waiter] // not yet signalled
	leader  *waiter
	blocked bool // the leader is, or is about to be, in Waiter.Wait
	free    []*waiter
	ring    func()             // ends the leader's Waiter.Wait
	closed  bool               // nobody waits any more
	down    bool               // nobody leads, because the client opens again
	left    chan struct{}      // is closed when the leader leaves, nil: nobody asks
	watches lists.List[waiter] // see pollset.go
	looks   []*waiter          // watches whose poll sets have to be checked
	keeper  *waiter            // the waiter that is woken to check them
	returns atomic.Int32       // how many waiters returned messages may help, and messages whose return says what became of them
	memory  atomic.Int32       // how many wait for wantMemory
}

// socketWaiters are the waiters at one socket, with counters that tell without the
// lock that there are none.
type socketWaiters struct {
	list   lists.List[waiter]
	counts [interests]atomic.Int32
}

// waiting reports whether anybody waits for one of want.
func (s *Socket) waiting(want interest) bool {
	for ; want != 0; want &= want - 1 {
		if s.wait.counts[bits.TrailingZeros16(uint16(want))].Load() > 0 {
			return true
		}
	}
	return false
}

func (s *Socket) count(want interest, d int32) {
	for i := range interests {
		if want&(1<<i) != 0 {
			s.wait.counts[i].Add(d)
		}
	}
	if want&wantReturns != 0 {
		s.c.wait.returns.Add(d)
	}
	if want&wantMemory != 0 {
		s.c.wait.memory.Add(d)
	}
}

// awaitReturn has waiters look at returned messages until one more is back, which was just submitted.
func (ws *waiters) awaitReturn(c *Client) {
	ws.returns.Add(1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.widen(c)
}

// widen has the daemon ring for returned messages, too, if a client blocks. See announce. The memory
// is there: closing it begins with mu, which is held.
func (ws *waiters) widen(c *Client) {
	if ws.blocked && !ws.closed {
		c.seg.ClientAsleep().CompareAndSwap(shm.AsleepForEvents, shm.Asleep)
	}
}

// enter registers the caller as a waiter at s.
func (s *Socket) enter(want interest, watcher bool) *waiter {
	ws := &s.c.wait
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var w *waiter
	if n := len(ws.free); n > 0 {
		w, ws.free = ws.free[n-1], ws.free[:n-1]
	} else {
		w = &waiter{ch: make(chan struct{}, 1)}
	}
	w.sock, w.want, w.watcher = s, want, watcher
	w.gen++
	if watcher {
		s.wait.list.AddFront(&w.onSocket, w) // so that notifyOne meets them first
	} else {
		s.wait.list.Add(&w.onSocket, w)
	}
	ws.all.Add(&w.onClient, w)
	s.count(want, 1)
	if ws.closed {
		ws.signalLocked(w)
	} else if want&wantReturns != 0 {
		ws.widen(s.c)
	}
	return w
}

// leave ends the waiting of w and reports whether w was signalled. w must not be
// used afterwards. If w was the leader, another waiter becomes the leader.
func (ws *waiters) leave(w *waiter) (signalled bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if signalled = w.signalled.Load(); !signalled {
		ws.unlink(w)
	}
	if ws.leader == w {
		ws.leader = nil
		if ws.left != nil {
			close(ws.left)
			ws.left = nil
		}
		if first := ws.all.Head; first != nil && !ws.down {
			ws.leader = first.Of
			ws.leader.poke()
		}
	}
	select {
	case <-w.ch:
	default:
	}
	w.signalled.Store(false)
	w.sock = nil
	w.gen++
	ws.free = append(ws.free, w)
	return signalled
}

func (ws *waiters) unlink(w *waiter) {
	w.sock.wait.list.Del(&w.onSocket)
	ws.all.Del(&w.onClient)
	w.sock.count(w.want, -1)
}

func (w *waiter) poke() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// signalLocked wakes w, once. ws.mu is held and w is not signalled yet.
func (ws *waiters) signalLocked(w *waiter) {
	if w.polls {
		ws.lookAtLocked(w)
		return
	}
	ws.unlink(w)
	w.signalled.Store(true)
	if ws.leader == w {
		if ws.blocked {
			ws.ring()
		}
		return
	}
	w.poke()
}

// signal wakes w, unless the waiting that gen counts is over.
func (ws *waiters) signal(w *waiter, gen uint64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.gen == gen && !w.signalled.Load() {
		ws.signalLocked(w)
	}
}

// notifyAll wakes everybody at s who waits for one of want.
func (s *Socket) notifyAll(want interest) { s.notify(want, false) }

// notifyOne wakes one consumer, and the watchers. A consumer that was woken this way
// and leaves something over must wake the next one. That also holds for a consumer
// that had what it wanted before it was woken.
func (s *Socket) notifyOne(want interest) { s.notify(want, true) }

func (s *Socket) notify(want interest, one bool) {
	if !s.waiting(want) {
		return
	}
	ws := &s.c.wait
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var next *lists.Link[waiter]
	for at := s.wait.list.Head; at != nil; at = next {
		next = at.Next
		if w := at.Of; w.want&want != 0 {
			ws.signalLocked(w)
			if one && !w.watcher {
				break
			}
		}
	}
}

// notifyEverybody wakes all waiters of the client for one of want.
func (ws *waiters) notifyEverybody(want interest) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var next *lists.Link[waiter]
	for _, l := range []*lists.List[waiter]{&ws.all, &ws.watches} {
		for at := l.Head; at != nil; at = next {
			next = at.Next
			if w := at.Of; w.want&want != 0 {
				ws.signalLocked(w)
			}
		}
	}
}

// suspend has nobody lead, so that nobody uses the rings and the doorbell without a
// lock. Waiters wait on, until they are signalled.
func (ws *waiters) suspend() {
	ws.mu.Lock()
	ws.down = true
	var left chan struct{}
	if ws.leader != nil {
		left = make(chan struct{})
		ws.left = left
	}
	ws.mu.Unlock()
	ws.notifyEverybody(wantAll)
	if left != nil {
		<-left
	}
}

// resume ends suspend and has everybody look again.
func (ws *waiters) resume() {
	ws.mu.Lock()
	ws.down = false
	ws.mu.Unlock()
	ws.notifyEverybody(wantAll)
}

// close wakes everybody. Whoever enters later is woken at once.
func (ws *waiters) close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.notifyEverybody(wantAll)
}
