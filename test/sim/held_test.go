package sim

import (
	"iter"
	"slices"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/engine"
)

// A turn can be held: when the engine has answered a process, the rest of its turn waits until a
// process needs the engine again or time goes on. Meanwhile the process goes on with the answer.
// Most requests are answered at the start of a turn, and their entries in rings are published
// later. Release and Free are answered anywhere in the turn. A call that waits for an event
// returns before the rings of other processes are published.

// ask has the engine run f, which answers a control request.
func (h *host) ask(f func()) {
	if h.pausing.on && h.up {
		h.w.saw("resumed for a request")
		h.resume()
	}
	if h.endTurn(); !h.up { // the daemon died in that turn, so nobody gets the answer of f
		f()
		return
	}
	ran := false
	post := func(then func()) {
		if !h.e.Do(func() { f(); ran = true; then() }) {
			broken("harness", "the engine ended")
		}
		h.wholeTurn()
	}
	if h.holds() {
		h.hold(post)
	} else {
		post(func() {})
	}
	if !ran && h.up {
		broken("harness", "a posted function did not run")
	}
}

// holds draws whether a turn is held where it has answered.
func (h *host) holds() bool { return h.w.rHold.IntN(100) < h.w.opt.held }

// hold runs turn until it calls pause. endTurn runs the rest.
func (h *host) hold(turn func(pause func())) {
	rest, _ := iter.Pull(func(yield func(struct{}) bool) {
		turn(func() { yield(struct{}{}) })
	})
	if _, held := rest(); held {
		h.rest = rest
	}
}

// turn runs one turn of the engine, up to the place where it is held, if it is.
func (h *host) turn() {
	if h.endTurn(); !h.up {
		return
	}
	if !slices.ContainsFunc(h.clients, func(c *client) bool { return c.waits > 0 }) || !h.holds() {
		h.wholeTurn()
		return
	}
	h.hold(func(pause func()) {
		h.pause = pause
		h.wholeTurn()
		h.pause = nil
	})
}

// answered holds the turn, because c has what one of its calls waited for.
func (c *client) answered() {
	h := c.h
	if pause := h.pause; pause != nil && c.waits > 0 {
		h.pause = nil
		h.w.answered = true
		h.w.midTurn++
		pause()
	}
}

// endTurn runs the turn that is held to its end.
func (h *host) endTurn() {
	if rest := h.rest; rest != nil {
		h.rest = nil
		rest()
	}
}

func (w *world) endTurns() {
	for _, h := range w.hosts {
		h.endTurn()
	}
}

// lateMark is a high-water mark that is locally complete and not published.
type lateMark struct {
	id    uint64
	since int64
}

// markBound is the virtual time within which the mark of what is locally complete has to be
// published. A process looks at its rings within 5 µs of each turn.
const markBound = 50_000_000

// checkMarks checks, now and then, that each mark follows what is locally complete, whatever
// other events the process gets. Marks wait for statuses. These wait for a process that does not
// look, and for a daemon that pauses: it writes none that has waited for room. So the time begins
// anew after both.
func (h *host) checkMarks() {
	h.turns++
	now := h.w.now()
	if h.e.Halts() || slices.ContainsFunc(h.clients, func(c *client) bool { return c.deaf > now }) {
		clear(h.behind) // in each such turn: a pause may have only a few
		return
	}
	if h.turns%16 != 0 {
		return
	}
	engine.EachMark(h.e, func(k engine.MarkKey, done, shown uint64) {
		late, is := h.behind[k]
		switch {
		case shown == done:
			if is {
				delete(h.behind, k)
			}
		case !is || barrier.Reached(shown, late.id):
			h.behind[k] = lateMark{done, now}
		case now-late.since > markBound:
			broken("HWM", "host %d, cell %d: %d was locally complete %d µs ago, the mark is %d", h.n, k.Cell(), late.id, (now-late.since)/1000, shown)
		}
	})
}
