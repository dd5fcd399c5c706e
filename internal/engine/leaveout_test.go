//go:build mutant

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
	"engine/handoverlanes.go: w.U64(begun)":         "the next attempt to connect sets it",
	"engine/handovermsg.go: w.U32(uint32(t.errno))": "is read in the turn that sets it",
	"engine/handoverlists.go: w.U32(a.uid)":         "the processes count for whom /etc/subuid says now",
	"engine/handoverrx.go: w.I64(m.began)":          "is read while a message is in assembly, or traced",
	"engine/handovermsg.go: w.Flags(t.done, t.handed, t.ungranted && !mutant.On(mutant.HandoverUngranted), t.toldUngranted, t.inQ.On(), t.slot.asks == t, m.Silent, #7": "asks for an ack a little earlier",

	// These do not occur: with its last queue pair a host gives back all keys that it is asked for.
	"engine/handoverregion.go: w.Flags(g.spent && !mutant.On(mutant.HandoverSpent), g.ended, g.once.set, g.waiting != nil) #1": "a key that is being taken back",
	"engine/handoverregion.go: w.Flags(g.spent && !mutant.On(mutant.HandoverSpent), g.ended, g.once.set, g.waiting != nil) #3": "a key that is being taken back",

	// TestHandoverTCP and TestPeersHandedOver have these.
	"engine/handoverlanes.go: w.Flags(p.wasUp, p.parted && !mutant.On(mutant.HandoverParted), p.askedBy != nil, !ok) #3": "of a lane by RDS/TCP",
	"engine/handoverlanes.go: w.U64(warned)": "of a second lane",

	// No scenario has these yet.
	"engine/handoverpeers.go: w.U64(p.RxLast)":           "a retransmission in a lane that was forgotten by the receiver alone",
	"engine/handover.go: w.U64(h.peers.sweep.forgotten)": "a peer that was forgotten",
	"engine/handoverlanes.go: w.Int(q.misses)":           "two devices",
	"engine/handoverlanes.go: w.I64(q.fallUntil)":        "two devices",
	"engine/handoverlanes.go: w.U8(p.reach.last)":        "a first rejection",
	"engine/handoverlanes.go: w.U32(t.rkey)":             "a GRANT that is refused after the pause",
	"engine/handoverlanes.go: w.Bool(t.by == byCookie)":  "a GRANT that is refused after the pause",
	"engine/handovermsg.go: w.Flags(t.done, t.handed, t.ungranted && !mutant.On(mutant.HandoverUngranted), t.toldUngranted, t.inQ.On(), t.slot.asks == t, m.Silent, #3": "a cookie that waits through two restarts of the peer",
	"engine/handovermsg.go: w.U32(uint32(m.WCStatus))":                                       "an atomic that failed and is not acked",
	"engine/handovermsg.go: w.U8(t.bad())":                                                   "an atomic that failed and is not acked",
	"engine/handoverop.go: w.U64(l.last.Len)":                                                "the last piece of an operation at its connection",
	"engine/handoverop.go: w.Bool(t.m.Op == &l.last)":                                        "the last piece of an operation at its connection",
	"engine/handoverop.go: w.Bool(l.over)":                                                   "an operation of which a piece failed",
	"engine/handoverop.go: w.Bool(l.ended)":                                                  "an operation of which a piece failed",
	"engine/handoverop.go: w.U8(uint8(l.outcome))":                                           "an operation of which a piece failed",
	"engine/handoverop.go: w.U64(pc.op.RemoteOff - t.opv[0].RemoteOff)":                      "a piece that is posted after the pause",
	"engine/handoverop.go: w.U32(pc.m.DstInc)":                                               "a piece that is posted after the pause",
	"engine/handoverslot.go: w.U64(p.at)":                                                    "a notice that is published while the engine comes to a stand",
	"engine/handoverrx.go: h.w.Int(s.NonEmpty)":                                              "a socket that is full by the number of messages",
	"engine/handoverclient.go: w.Int(s.counted)":                                             "a sender of few messages among many",
	"engine/handoverclient.go: w.Int(s.before)":                                              "a sender of few messages among many",
	"engine/handoverclient.go: w.I64(s.countAt)":                                             "a sender of few messages among many",
	"engine/handoverslot.go: w.U64s(last, ce.queued, ce.told, shown, ce.next, ce.nextAt) #2": "a status that was told before others wait",
}
