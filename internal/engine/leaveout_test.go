//go:build leaveout

package engine

import (
	"regexp"
	"testing"

	"github.com/rdsd/rdsd/internal/handover/leaveout"
)

// TestEachValueMatters: whatever value that the engine writes of its state is left out, a scenario
// of TestGoesOn or TestRationHandedOver notices, or the next engine does not take the state.
// Connections, grants and rings write their own: see the tests of these packages.
func TestEachValueMatters(t *testing.T) {
	run := func(t *testing.T) {
		t.Run("goes on", TestGoesOn)
		t.Run("ration", TestRationHandedOver)
	}
	leaveout.Each(t, leaveout.Check{Run: run, Tests: "^(TestGoesOn|TestRationHandedOver)$", Of: regexp.MustCompile("^engine/"), Except: exceptions})
}

// exceptions are values that no scenario notices, and why.
var exceptions = map[string]string{
	// These make no difference.
	"engine/handoverlanes.go: s.U64(&p.begun)":          "the next attempt to connect sets it",
	"engine/handovermsg.go: handover.As32(s, &t.errno)": "is read in the turn that sets it",
	"engine/handoverlists.go: s.U32(&a.of.UID)":         "the processes count for whom /etc/subuid says now",
	"engine/handoverrx.go: s.I64(&m.began)":             "is read while a message is in assembly, or traced",
	"engine/handovermsg.go: f, known := s.Flags(&st.done, &t.handed, &t.ungranted, &t.toldUngranted, &st.waits, &st.asks, #7": "asks for an ack a little earlier",

	// These do not occur: with its last queue pair a host gives back all keys that it is asked for.
	"engine/handoverregion.go: f, known := s.Flags(&g.spent, &g.ended, &g.once.set, &waits) #1": "a key that is being taken back",
	"engine/handoverregion.go: f, known := s.Flags(&g.spent, &g.ended, &g.once.set, &waits) #3": "a key that is being taken back",

	// TestHandoverTCP and TestPeersHandedOver have these.
	"engine/handoverlanes.go: f, known := s.Flags(&wasUp, &parted, &asked, &onTCP, &moving) #3": "of a lane by RDS/TCP",
	"engine/handoverlanes.go: s.U64(&p.warned)":                                                 "of a second lane",

	// TestPeersGolden and test/sim.TestSim have these.
	"engine/handoverlanes.go: f, known := s.Flags(&wasUp, &parted, &asked, &onTCP, &moving) #4": "several paths",
	"engine/handoverpeers.go: x.s.U8(&path)":                                                    "several paths",
	"engine/handoverslot.go: s.U8(&path)":                                                       "several paths",

	// No scenario has these yet.
	"engine/handoverpeers.go: s.U64(&p.RxLast)":              "a retransmission in a lane that was forgotten by the receiver alone",
	"engine/handover.go: s.U64(&x.peers.sweep.forgotten)":    "a peer that was forgotten",
	"engine/handoverlanes.go: s.Int(&q.misses, 1<<31)":       "two devices",
	"engine/handoverlanes.go: s.Error(&q.fellWhy, mostText)": "two devices",
	"engine/handoverlanes.go: s.I64(&q.fallUntil)":           "two devices",
	"engine/handoverlanes.go: s.U8(&p.reach.last)":           "a first rejection",
	"engine/handoverlanes.go: s.U32(&rkey)":                  "a GRANT that is refused after the pause",
	"engine/handoverlanes.go: s.Bool((*bool)(&t.by))":        "a GRANT that is refused after the pause",
	"engine/handovermsg.go: f, known := s.Flags(&st.done, &t.handed, &t.ungranted, &t.toldUngranted, &st.waits, &st.asks, #3": "a cookie that waits through two restarts of the peer",
	"engine/handovermsg.go: handover.As32(s, &m.WCStatus)":                                                                    "an atomic that failed and is not acked",
	"engine/handovermsg.go: s.U8(&st.bad)":                                                                                    "an atomic that failed and is not acked",
	"engine/handoverop.go: s.U64(&last)":                                                                                      "the last piece of an operation at its connection",
	"engine/handoverop.go: s.Bool(&carries)":                                                                                  "the last piece of an operation at its connection",
	"engine/handoverop.go: s.Bool(&l.over)":                                                                                   "an operation of which a piece failed",
	"engine/handoverop.go: s.Bool(&l.ended)":                                                                                  "an operation of which a piece failed",
	"engine/handoverop.go: s.U8((*uint8)(&l.outcome))":                                                                        "an operation of which a piece failed",
	"engine/handoverop.go: s.U64(&from)":                                                                                      "a piece that is posted after the pause",
	"engine/handoverop.go: if s.U32(&dst); s.Reads() && !x.pieceAgain(t, done, from, size, dst) {":                            "a piece that is posted after the pause",
	"engine/handoverslot.go: if s.U64(&p.at); s.Reads() {":                                                                    "a notice that is published while the engine comes to a stand",
	"engine/handoverrx.go: x.s.Int(&sum.NonEmpty, frames.MaxLen)":                                                             "a socket that is full by the number of messages",
	"engine/handoverclient.go: s.Int(&so.counted, mostInt)":                                                                   "a sender of few messages among many",
	"engine/handoverclient.go: s.Int(&so.before, mostInt)":                                                                    "a sender of few messages among many",
	"engine/handoverclient.go: s.I64(&so.countAt)":                                                                            "a sender of few messages among many",
	"engine/handoverslot.go: s.U64s(&last, &ce.queued, &ce.told, &ce.shown, &ce.next, &ce.nextAt) #2":                         "a status that was told before others wait",
}
