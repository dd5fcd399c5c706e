package sim

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/verbs"
)

// A daemon before version 7 of the state knows one path, and rejects requests in others as what it does not understand.
const knowsPaths = 7

// A daemon before version 6 knows no traces.
const knowsTraces = 6

// drawsOlder draws whether a daemon is such a one.
func (w *world) drawsOlder() bool { return w.opt.older && w.rOlder.IntN(3) == 0 }

// wantsPaths draws how many paths h's daemon wants.
func (h *host) wantsPaths() int {
	w := h.w
	if !w.opt.paths {
		return 1
	}
	n := pick(w.rPaths, 1, 2, 3, 8)
	if h.older {
		return 1
	}
	return n
}

// PollCM has an older daemon reject requests in further paths.
func (d turnDevice) PollCM(ev []verbs.CMEvent) int {
	all := ev[:d.Device.PollCM(ev)]
	if !d.h.older {
		return len(all)
	}
	kept := ev[:0]
	for _, x := range all {
		if x.Type == verbs.CMConnectRequest {
			if p, err := wire.ParsePrivate(x.Private, x.Remote.Addr().Is6()); err == nil && p.Path != 0 {
				d.h.w.saw("a path rejected")
				_ = d.Device.Reject(x.Req, wire.Rejected(wire.NotSaid))
				continue
			}
		}
		kept = append(kept, x)
	}
	return len(kept)
}

// anyVersion draws a version of the state in which h's daemon can be handed over, and whether its successor is an older one.
func (h *host) anyVersion() (version uint16, older bool) {
	w := h.w
	switch older = w.drawsOlder(); {
	case !w.opt.paths:
		return handover.Oldest + uint16(w.rVersion.IntN(int(handover.Newest-handover.Oldest)+1)), false
	case older || h.older:
		return handover.Oldest + uint16(w.rOlder.IntN(int(knowsPaths-handover.Oldest))), older
	}
	return handover.Newest, older
}

// refused reports whether err is that a successor of that version does not know what h's daemon has: several paths, or more messages
// of traces than it has room for. Then h's daemon goes on.
func (h *host) refused(err error, version uint16) bool {
	paths, traces := errors.Is(err, engine.ErrPaths), errors.Is(err, engine.ErrTraced)
	switch {
	case !paths && !traces:
		return false
	case paths && (version >= knowsPaths || h.older) || traces && version >= knowsTraces:
		broken("succession", "host %d is not handed over in version %d: %v", h.n, version, err)
	case paths:
		h.w.saw("not taken over because of paths")
	}
	h.w.log(h, "not taken over", int64(version), 0, 0)
	return true
}

// olderScenario is the workload among daemons of which some know one path, with planned restarts from one kind to the other.
var olderScenario = &scenario{
	name: "older",
	options: func(r *rand.Rand, o *options) {
		o.paths, o.older = true, true
		o.halt, o.succeed, o.crash = pick(r, 5, 20), true, max(o.crash, 2)
	},
	play: func(w *world) { w.run() },
	seen: []string{"not taken over because of paths", "taken over by an older one", "an older one was taken over"},
}

// TestSimPathsOlder: beside daemons that know one path, and in their place, nothing is lost, doubled, put out of order or unknown
// that would not be with one path.
func TestSimPathsOlder(t *testing.T) {
	if raceEnabled {
		t.Skip("TestSimCalm halts under the race detector, too, without the faults")
	}
	olderScenario.test(t)
}
