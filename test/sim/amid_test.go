package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/verbs/sim"
)

// amidScenario is the workload with processes that send and read in the middle of turns of
// their daemon: when it has taken what they had submitted, and before it looks at its
// device. What they open then, they append to until its next turn. It has nothing of that
// when it tells them what became of the messages before.
var amidScenario = &scenario{
	name: "amid",
	options: func(r *rand.Rand, o *options) {
		o.amid = pick(r, 10, 50, 100)
		o.small, o.burst, o.gap = 24, pick(r, 10, 60), pick[int64](r, 2_000, 20_000)
		o.rebind = max(o.rebind, 5)
	},
	play: func(w *world) { w.run() },
	seen: []string{"sent in mid-turn", "sent more of a run in mid-turn", "read in mid-turn", "a notice came in mid-turn"},
}

// TestSimAmid: nothing that is sent, received and told in the middle of a turn differs from
// what is between two turns.
func TestSimAmid(t *testing.T) { amidScenario.test(t) }

// turnDevice is a host's device. The engine has it go on in the middle of each turn.
type turnDevice struct {
	*sim.Device
	h *host
}

func (d turnDevice) Progress() bool {
	d.h.amid()
	d.h.at("progress")
	if d.h.turns%looksAt == 0 {
		d.h.meet() // some things begin and end in one turn
	}
	return d.Device.Progress()
}

// maxAmids is how often processes go on in the middle of turns.
const maxAmids = 20_000

// amid lets a process of h go on in the middle of a turn, unless one waits for the turn.
func (h *host) amid() {
	w := h.w
	if w.opt.amid == 0 || !h.free || w.depth > 0 || w.over || len(h.clients) == 0 || w.rPlay.IntN(100) >= w.opt.amid {
		return
	}
	// One turn brings about the next: without these bounds they never end while no host
	// reaches another.
	if w.amids++; w.amids > maxAmids || len(w.msgs) > 3*wantMessages {
		return
	}
	c := pick(w.rPlay, h.clients...)
	if c.gone || c.full || len(c.eps) == 0 {
		return
	}
	h.free = false // its calls do not come back here
	defer func() { h.free = true }()
	if w.rPlay.IntN(3) == 0 {
		notes := w.notes
		c.poll()
		w.saw("read in mid-turn")
		if w.notes != notes {
			w.saw("a notice came in mid-turn")
		}
	}
	if len(c.eps) == 0 {
		return
	}
	e := pick(w.rPlay, c.eps...)
	to := e.target()
	for i := range 1 + w.rPlay.IntN(6) {
		if c.subs+8 > int(w.opt.params.SubEntries) { // a send would have the daemon turn
			return
		}
		if e.send(to, w.rPlay.IntN(200), extra{}) == nil {
			return
		}
		w.saw("sent in mid-turn")
		if i > 0 {
			w.saw("sent more of a run in mid-turn")
		}
	}
}
