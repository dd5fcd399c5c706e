package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn/msg"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/rdmaop"
)

// TestLongGivenUp: when an operation in pieces is DROPPED by its limit, none of it comes any more.
// So the status waits for the pieces that are on their way, whatever happens meanwhile, but for a
// cancel, and the mark does not wait for it.
func TestLongGivenUp(t *testing.T) {
	oneGoroutine(t)
	dropped, cancelled := int(abi.StatusDropped), int(abi.StatusCanceled)
	for name, c := range map[string]struct {
		then func(x *longRun)
		want int // of an operation that waits for its pieces, -1: nobody is told
	}{
		"alone":                  {func(*longRun) {}, dropped},
		"replaced":               {func(x *longRun) { x.pause(0, true) }, dropped},
		"the target is replaced": {func(x *longRun) { x.pause(1, true) }, dropped},
		"reset":                  {(*longRun).reset, dropped},
		"the peer restarts":      {(*longRun).restart, dropped},
		"the peer stays away": {func(x *longRun) {
			x.w.net.Faults.Unreachable = 1e6
			x.reset()
		}, dropped},
		"withdrawn": {(*longRun).withdraw, cancelled},
		"withdrawn, and replaced": {func(x *longRun) {
			x.withdraw()
			x.pause(0, true)
		}, cancelled},
		"closed, and replaced": {func(x *longRun) {
			x.a.must(&ipc.CloseSock{Sock: x.a.sock})
			x.pause(0, true)
		}, -1},
	} {
		for _, two := range []bool{false, true} {
			if two && name != "alone" && name != "withdrawn, and replaced" {
				continue
			}
			t.Run(fmt.Sprintf("%s, two operations %v", name, two), func(t *testing.T) {
				waited, stride := 0, 3
				if name == "alone" {
					stride = 1
				}
				for turns, over := 0, false; !over && !t.Failed(); turns += stride {
					x := newLongOnce(t, 2, 3*maxPieces)
					x.submitLong(two)
					var waits bool
					if over, waits = x.limited(turns); waits {
						waited++
					}
					x.a.e.dirty.touch(x.a.e.peers.all[0])
					c.then(x)
					x.givenUp(turns, waits, c.want)
				}
				if waited == 0 {
					t.Error("no status waited for pieces")
				}
			})
		}
	}
}

func (x *longRun) withdraw() {
	x.a.put(func(e *shm.Entry) { *e.Sub() = shm.Sub{Kind: shm.KindCancel, Sock: x.a.sock} })
	x.step()
	if st := x.a.statuses()[0]; st < 0 {
		x.Error("withdrawn, and not told at once")
	}
}

// limited has the limit of the operation pass after so many turns. over: it had ended before.
// waits: its status waits for pieces.
func (x *longRun) limited(turns int) (over, waits bool) {
	for range turns {
		x.step()
	}
	x.a.look()
	if over = len(x.a.back) == 2; over {
		return true, false
	}
	m := x.a.cl.msgs[1]
	if m == nil { // not taken yet
		return false, false
	}
	m.slot.way.end(m, msg.Withdrawn)
	return false, m.long != nil && m.long.pieces.N > 0 && m.opv[0].State() < rdmaop.StateTold
}

// givenUp checks what becomes of the operation.
func (x *longRun) givenUp(turns int, waits bool, want int) {
	x.Helper()
	away := x.w.net.Faults.Unreachable > 0
	if away {
		x.w.pass(100*ms, x.w.es...)
		if waits && x.a.hwm() == 0 {
			x.Errorf("after %d turns, and 100 ms: the mark waits for the peer", turns)
		}
	}
	var then []byte
	for range 200 {
		x.step()
		if st := x.a.statuses()[0]; st == int(abi.StatusDropped) && then == nil {
			then = bytes.Clone(x.b.mem)
		}
	}
	x.w.run()
	st := x.a.statuses()[0]
	if away {
		x.w.net.Faults.Unreachable = 0
		x.w.pass(2000*ms, x.w.es...)
	}
	x.a.look()
	switch {
	case waits && st != want:
		x.Errorf("after %d turns: status %d, want %d", turns, st, want)
	case then != nil && !bytes.Equal(then, x.b.mem):
		x.Errorf("after %d turns: the region changed after the operation was DROPPED", turns)
	case want >= 0 && (x.a.hwm() != x.a.opID || len(x.a.back) != 2):
		x.Errorf("after %d turns: mark %d, %d ids back", turns, x.a.hwm(), len(x.a.back))
	}
}
