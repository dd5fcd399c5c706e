package daemon

import (
	"testing"

	"github.com/rdsd/rdsd/rdmaop"
)

// TestGrantInItsLane: a GRANT goes on the lane of the socket that owns the
// region, ahead of what that socket sends later.
func TestGrantInItsLane(t *testing.T) {
	w, c, _ := lanePair(t, EngineConfig{Silence: -1}) // a probe would be counted
	e := w.es[0]
	b, err := e.addBuffer(c[0].cl, make([]byte, 4096), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		port uint16
		lane uint8
	}{{10, 0}, {15, 5}} {
		was := [2]uint64{laneConn(t, e, 0).Stats.SendMsgs, laneConn(t, e, 5).Stats.SendMsgs}
		r, err := e.register(e.localsV[0].ports.get(tc.port), b, 0, 4096, rdmaop.RightRead)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.expose(r, hostAddr(1), 20, tc.lane); err != nil {
			t.Fatal(err)
		}
		e.touch(e.peersV[0])
		e.touch(e.peersV[1])
		w.run()
		for i, lane := range []uint8{0, 5} {
			sent := laneConn(t, e, lane).Stats.SendMsgs - was[i]
			if want := uint64(b2u(lane == tc.lane)); sent != want {
				t.Errorf("a GRANT of lane %d: %d messages on lane %d, want %d", tc.lane, sent, lane, want)
			}
		}
	}
	w.clean(c[:]...)
}
