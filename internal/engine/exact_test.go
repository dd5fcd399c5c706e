package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/verbs/sim"
)

// TestExactOutcome breaks the connection once, at every point of every kind of
// operation, and checks that its status is the truth, that nothing ran twice,
// and that the messages around it arrive once and in order.
func TestExactOutcome(t *testing.T) {
	oneGoroutine(t)
	points := []sim.PointKind{sim.BeforeWrite, sim.AfterWritePlaced, sim.BeforeReadSampled, sim.AfterReadSampled,
		sim.BeforeAtomic, sim.AfterAtomic, sim.BeforeSendDelivered, sim.AfterSendDelivered, sim.BeforeCompletion}
	kinds := map[string][]abi.OpKind{
		"write": {abi.OpWrite}, "read": {abi.OpRead}, "add": {abi.OpFetchAdd}, "swap": {abi.OpCmpSwap},
		"write, add": {abi.OpWrite, abi.OpFetchAdd}, "read, swap": {abi.OpRead, abi.OpCmpSwap},
	}
	saw := map[string]int{}
	for name, ops := range kinds {
		for _, point := range points {
			for action := sim.Break; action <= sim.HalfOpenPeer; action++ {
				for skip := range 3 { // which passage breaks
					t.Run(fmt.Sprintf("%s/point %d/action %d/passage %d", name, point, action, skip), func(t *testing.T) {
						hit, status := exactOutcome(t, ops, point, action, skip)
						if hit {
							saw[fmt.Sprint(name, status)]++
						}
					})
				}
			}
		}
	}
	for name, ops := range kinds {
		for _, s := range []int{int(abi.StatusSuccess), int(abi.StatusDropped)} {
			// An atomic by itself is sent again until it has run.
			never := s == int(abi.StatusDropped) && ops[0].Atomic()
			if n := saw[fmt.Sprint(name, s)]; never != (n == 0) {
				t.Errorf("%d times a %s that was broken ended with status %d", n, name, s)
			}
		}
	}
}

// exactOutcome sends a plain message, one with the operations and a plain one.
func exactOutcome(t *testing.T, kinds []abi.OpKind, point sim.PointKind, action sim.Action, skip int) (hit bool, status int) {
	w, a, b := opPair(t, 2)
	r := b.expose(0, 64, abi.RightRead|abi.RightWrite|abi.RightAtomic, a)
	a.submit(shm.Sub{Len: 1})
	w.run()
	w.net.Hook = func(p sim.Point) sim.Action {
		if p.Kind != point || hit {
			return sim.Pass
		}
		if skip--; skip >= 0 {
			return sim.Pass
		}
		hit = true
		return action
	}
	var ops []shm.SubOp
	for _, k := range kinds {
		op := a.op(k, r.Cookie, 0)
		if k == abi.OpFetchAdd || k == abi.OpCmpSwap {
			op = a.args(op, shm.AtomicEntry{CompareAdd: 1, Swap: 2, SwapMask: ones})
			if op.RemoteOff, op.Off = 8, 16; k == abi.OpFetchAdd {
				op = a.args(op, shm.AtomicEntry{CompareAdd: 2})
			}
		}
		ops = append(ops, op)
	}
	a.submit(shm.Sub{Len: 2})
	a.submit(shm.Sub{Len: 3}, ops...)
	a.submit(shm.Sub{Len: 4})
	for range 5 {
		w.run()
	}
	var got []uint32
	b.look()
	for _, m := range b.msgs {
		got = append(got, m.Len)
	}
	st := a.statuses()
	status = st[0]
	delivered := slices.Contains(got, 3)
	want := []uint32{1, 2, 3, 4}
	if !delivered {
		want = []uint32{1, 2, 4}
	}
	switch {
	case !slices.Equal(got, want):
		t.Errorf("delivered %v, want %v", got, want)
	case len(st) > 1 && st[0] != st[1]:
		t.Errorf("statuses %v of one message", st)
	case delivered && status != int(abi.StatusSuccess), !delivered && status != int(abi.StatusDropped):
		t.Errorf("delivered %v, status %d", delivered, status)
	case a.hwm() != uint64(len(kinds)) || len(a.back) != 4:
		t.Errorf("HWM %d, %d ids back", a.hwm(), len(a.back))
	}
	for _, k := range kinds {
		n := binary.NativeEndian.Uint64(b.mem[8:])
		if k >= abi.OpFetchAdd && n != 2 && (n != 0 || delivered) {
			t.Errorf("delivered %v, the atomic left %d", delivered, n)
		}
	}
	w.net.Hook = nil
	w.clean2(a, b)
	return hit, status
}
