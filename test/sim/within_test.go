package sim

import (
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/handover"
)

// A turn calls out at these points: from a posted closure at its start ("posted"), when it has taken
// in what clients have submitted and has not looked at completions ("progress"), when it has handed
// what is to be sent to the device ("flush"), when it rings a client ("ring"), and when it reports an
// event ("report"). A daemon asks for a pause from a posted closure. The others show that a pause
// may begin in the middle of a turn.

// at lets a test do something at a point of a turn of h.
func (h *host) at(point string) {
	if f := h.w.within; f != nil {
		f(h, point)
	}
}

func (d turnDevice) Flush() {
	d.h.at("flush")
	d.Device.Flush()
}

// withinWork is what two hosts do while one of them is asked to pause.
var withinWork = []struct {
	name string
	do   func(*script)
}{
	{"datagrams", func(s *script) { s.datagrams(10); s.back(3) }},
	{"long", func(s *script) { s.a.send(s.b.ap, 300_000, extra{}); s.datagrams(1); s.back(1) }},
	{"operations", func(s *script) {
		s.issue(s.a, 3, abi.OpWrite, 20, false)
		s.datagrams(1)
		s.issue(s.a, 2, abi.OpRead, 20, false)
		s.back(2)
	}},
}

// TestSuccessionWithin: a host's engine is asked to pause at every point of every turn at which it
// calls out, in the life of messages and operations, and replaced. Applications on the host
// notice nothing but a pause.
func TestSuccessionWithin(t *testing.T) {
	seen := map[string]int{}
	for _, c := range withinWork {
		for _, sender := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the sender: %v", c.name, sender), func(t *testing.T) {
				stride := 1
				if testing.Short() {
					stride = 7
				}
				for n := 0; haltWithin(t, c.do, sender, n, seen); n += stride {
					if n > 3000 {
						t.Fatal("the work does not end")
					}
				}
			})
		}
	}
	for _, point := range []string{"posted", "progress", "flush"} {
		if seen[point] == 0 {
			t.Errorf("never paused at %q", point)
		}
	}
	t.Logf("paused at %v", seen)
}

// haltWithin is one such run, in which the engine is asked at its nth point. It reports whether
// there was one.
func haltWithin(t *testing.T, do func(*script), sender bool, n int, seen map[string]int) (more bool) {
	t.Helper()
	s, h, before := newPausing(t, sender)
	defer s.explain()
	asked := ""
	do(s)
	s.within = func(at *host, point string) {
		if at != h || asked != "" {
			return
		}
		if n--; n < 0 {
			asked = point
			h.e.Halt()
		}
	}
	for asked == "" && s.step() {
	}
	s.within = nil
	if asked == "" {
		s.finish()
		return false
	}
	seen[asked]++
	h.kick()
	s.goesOn(h, func(h *host) { h.succeed(handover.Newest) }, before, "asked to pause at "+asked)
	return !t.Failed()
}
