package soft

import (
	"slices"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// TestStateEdges: a queue pair moves along the edges of leads, and to reset, failed and destroyed
// while it is not destroyed. Every other edge is a panic.
func TestStateEdges(t *testing.T) {
	moves := func(from, to state) (ok bool) {
		defer func() { ok = recover() == nil }()
		q := &qp{state: from}
		q.become(to)
		return q.state == to
	}
	for from := range states {
		for to := range states {
			want := slices.Contains(leads[from], to) || from != destroyed && (to == reset || to >= failed)
			if got := moves(from, to); got != want {
				t.Errorf("from %d to %d: %v", from, to, got)
			}
		}
		if got := from.connected(); got != (asVerbs[from] == verbs.QPRTS) || from.receives() && !got || from.sends() && !got || got && !from.queues() {
			t.Errorf("state %d is connected %v, receives %v, sends %v, queues %v", from, got, from.receives(), from.sends(), from.queues())
		}
	}
}
