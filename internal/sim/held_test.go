package sim

import (
	"iter"

	"github.com/rdsd/rdsd/barrier"
	"github.com/rdsd/rdsd/internal/daemon"
)

// ask has the engine run f, which answers a control request. A process has the
// answer as soon as f has run, at the start of a turn, and goes on while the rest
// of the turn is still to come: what it wrote into rings is published later. Of
// some requests the turn waits there until this process needs the engine again,
// or time goes on.
func (h *host) ask(f func()) {
	if h.endTurn(); !h.up { // it died in that turn: nobody hears what f says
		f()
		return
	}
	ran := false
	post := func(then func()) {
		if !h.e.Do(func() { f(); ran = true; then() }) {
			broken("harness", "the engine ended")
		}
		h.turn()
	}
	if h.w.rHold.IntN(100) < h.w.opt.held {
		rest, _ := iter.Pull(func(yield func(struct{}) bool) {
			post(func() { yield(struct{}{}) })
		})
		if _, held := rest(); held {
			h.rest = rest
		}
	} else {
		post(func() {})
	}
	if !ran && h.up {
		broken("harness", "a posted function did not run")
	}
}

// endTurn takes the turn that is under way to its end.
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

// lateMark is a high-water mark that has not been published.
type lateMark struct {
	id    uint64
	since int64
}

// markBound is the virtual time in which what is locally complete has to be
// published: a process looks at its rings within 5 µs of each turn.
const markBound = 50_000_000

// checkMarks looks, now and then, whether each mark follows what is locally
// complete, whatever else the process is told.
func (h *host) checkMarks() {
	if h.turns++; h.turns%16 != 0 {
		return
	}
	now := h.w.now()
	h.e.EachMark(func(k daemon.MarkKey, done, shown uint64) {
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
